# SPDX-License-Identifier: GPL-3.0-or-later
"""The text that teaches `slotward release`: what each command does, with examples."""

from __future__ import annotations

from typing import Dict

EXITS = """exit status: 0 done or nothing to do, 1 a file cannot be read or written, 2 the command line is wrong,
3 refused (the code says which rule)"""

TOUR = """A release that two of three people must sign:

  each signer, once, on a machine of their own:
    slotward release keygen --output ana.pem
    (ana.pem stays there; ana.pub.pem and the printed pin go to everybody)

  whoever builds:
    slotward release build --product slotward --version 1.1.0 --sequence 2 \\
      --key ana.pub.pem --key ben.pub.pem --key eva.pub.pem \\
      --artifact build/slotward_1.1.0_linux_amd64 --output releases

  two of the signers, each on a copy, then together:
    slotward release inspect --manifest manifest.json
    slotward release sign --manifest manifest.json --key ana.pem
    slotward release merge --output releases/slotward/1.1.0/manifest.json ana/manifest.json ben/manifest.json

  anybody:
    slotward release verify --manifest releases/slotward/1.1.0/manifest.json \\
      --pins-file pins.txt --threshold 2
    slotward release publish --from releases/slotward/1.1.0 --to /srv/releases --pins-file pins.txt --threshold 2

Key sets (key-set), notices that a release is withdrawn (withdraw) and permits to go below the floor (permit)
are written unsigned and then signed, merged and verified by the same commands."""

KEYGEN = """Writes the private key (mode 0600, encrypted) and beside it the public key, NAME.pub.pem, and
prints the key id and the pin. Nothing is overwritten. Hosts pin the key by [update] release_pins.
Without --passphrase-file the passphrase is asked for on the terminal, twice; an unencrypted key is
made only with --no-passphrase.

  slotward release keygen --output ana.pem
  slotward release keygen --output ben.pem --alg EdDSA --passphrase-file ben.txt"""

BUILD = """Writes DIR/<product>/<version>/ with manifest.json (unsigned) and a copy of each artifact, named
<product>_<version>_<os>_<arch>. Building the same release again changes nothing; building
another one in its place is refused: a version is published once. The sequence must grow with
every release of the product, since hosts refuse what is below the highest they confirmed;
--sequence next counts it from the manifests at --previous that verify by the pins.

An artifact must be a program for its platform (ELF for that machine, or a script), or, when its name
ends in .tar.gz, an archive that hosts would unpack with the product's program in it.

  slotward release build --product toy --version 1.1.0 --sequence 2 --key ana.pub.pem --key ben.pub.pem \\
    --artifact out/toy_1.1.0_linux_amd64 --artifact out/arm/toy:linux-arm64 --output releases
  slotward release build --product toy --version 1.2.0 --sequence next --previous /srv/releases/toy \\
    --pins-file pins.txt --threshold 2 --key ana.pub.pem --key ben.pub.pem \\
    --artifact toy_1.2.0_linux_amd64.tar.gz --output releases"""

INSPECT = """Shows everything that a release manifest, key set, permit or withdrawal says, which of its keys
have signed, and the digest of its body. It takes no pins and vouches for nothing: verify does.

  slotward release inspect --manifest releases/toy/1.1.0/manifest.json
  slotward release inspect --document key-set.json --json"""

SIGN = """Shows on standard error what is signed, asks on the terminal (unless --yes), and adds one signature to the
document. The key must be one that the document lists. Signing twice changes nothing.

With --previous the release is compared with the newest one there that verifies; a sequence that is not
the next, a lower version, other keys or channel, or a platform that is gone is called a jump. A jump is
signed only after the word was typed on a terminal, or with --accept-jump, for which --yes is not enough.

A key that a program holds (a token, an agent, a remote signer) signs by --key-command: no shell, the bytes
to sign on its standard input, the signature alone on its standard output (ES256 over SHA-256: DER or
64 bytes; EdDSA: 64 bytes). It is verified by --public-key before it is added.

  slotward release sign --manifest manifest.json --key ana.pem --previous /srv/releases/toy --pins-file pins.txt
  slotward release sign --manifest manifest.json --public-key ana.pub.pem \\
    --key-command 'pkcs11-tool --sign --id 01 --mechanism ECDSA-SHA256 --signature-format openssl'"""

MERGE = """All files must be the same document; the result has the signatures of all of them, and of the
output file when it is there. A signature that does not verify is refused.

  slotward release merge --output releases/toy/1.1.0/manifest.json ana/manifest.json ben/manifest.json"""

VERIFY = """Checks what a host with these pins checks: shape, signatures, canonical form, expiry; of a document of
any kind, offline. With --artifact the files' size and SHA-256 too. Changes nothing.

  slotward release verify --manifest manifest.json --pins-file pins.txt --threshold 2 \\
    --artifact toy_1.1.0_linux_amd64"""

PUBLISH = """Writes BASE/<product>/<version>/ (manifest, artifacts, withdrawn.json when there is a notice) and the
catalogue BASE/<product>/releases.json. All is verified first; a version appears whole or not at all, other
bytes are never overwritten, and publishing again changes nothing. --from is a release's directory, or the
file of a signed withdrawal.

  slotward release publish --from releases/toy/1.1.0 --to /srv/releases --pins-file pins.txt --threshold 2
  slotward release publish --from withdrawn.json --to /srv/releases --pins-file pins.txt --threshold 2"""

WITHDRAW = """Writes the unsigned notice that a release is not to be installed any more. Signed by the threshold of
keys it makes new installs refuse that version and sequence, and hosts that run it say so.

  slotward release withdraw --product toy --version 1.1.0 --sequence 2 --why 'loses data on 32-bit hosts' \\
    --key ana.pub.pem --key ben.pub.pem --output withdrawn.json"""

KEY_SET = """Writes an unsigned key set: the pins and the threshold that replace, on hosts that take it, all that they
trust now. It must be signed by the threshold of the old set, so --key lists public keys of the old set
(those of the new one may be among them). --previous is the key set before; for the first one --old-pins
or --old-pins-file and --old-threshold say what the hosts' configuration pins. A set that was issued after
the old one expired is refused unless --accept-gap says that it is known.

  slotward release key-set --product toy --sequence 1 --pins-file new-pins.txt --threshold 2 \\
    --old-pins-file pins.txt --old-threshold 2 --key ana.pub.pem --key ben.pub.pem --output key-set-1.json
  slotward release key-set --product toy --sequence 2 --pins-file newer-pins.txt --threshold 2 \\
    --previous key-set-1.json --key ana.pub.pem --key fay.pub.pem --output key-set-2.json"""

PERMIT = """Writes an unsigned permit: the hosts named (by the content of their /etc/machine-id) may install this
release once, although it is below their floor. Each host uses it once; it expires soon.

  slotward release permit --product toy --version 1.0.0 --sequence 1 --host 4b3f6a526f0e4c399a3e2f6f0a1f2f10 \\
    --key ana.pub.pem --key ben.pub.pem --expires-days 3 --output permit.json"""

LINES: Dict[str, str] = {
    "keygen": "make a release key",
    "build": "write a release's manifest and files",
    "inspect": "show what a signed document says",
    "sign": "add one signature",
    "merge": "put signatures made apart together",
    "verify": "check a document as a host would",
    "publish": "put a release where hosts fetch it",
    "withdraw": "write the notice that a release is withdrawn",
    "key-set": "write the keys that hosts trust from now on",
    "permit": "write a permit to go below the floor",
}

PAGES: Dict[str, str] = {
    "keygen": KEYGEN,
    "build": BUILD,
    "inspect": INSPECT,
    "sign": SIGN,
    "merge": MERGE,
    "verify": VERIFY,
    "publish": PUBLISH,
    "withdraw": WITHDRAW,
    "key-set": KEY_SET,
    "permit": PERMIT,
}
