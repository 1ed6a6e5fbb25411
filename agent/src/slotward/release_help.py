# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of `slotward release`, and the text that teaches it."""

from __future__ import annotations

import argparse
import time

from slotcore import keys, manifest, rfc3339

EXITS = """exit status: 0 done or nothing to do, 1 a file cannot be read or written, 2 the command line is wrong,
3 refused (the code says which rule)"""

TOUR = (
    """A release that two of three people must sign:

  each signer, once, on a machine of their own:
    slotward release keygen --output ana.pem
    (ana.pem stays there; ana.pub.pem and the printed pin go to everybody)

  whoever builds:
    slotward release build --product slotward --version 1.1.0 --sequence 2 \\
      --key ana.pub.pem --key ben.pub.pem --key eva.pub.pem \\
      --artifact build/slotward_1.1.0_linux_amd64 --output releases

  two of the signers, each on a copy, then together:
    slotward release sign --manifest manifest.json --key ana.pem
    slotward release merge --output releases/slotward/1.1.0/manifest.json ana/manifest.json ben/manifest.json

  anybody:
    slotward release verify --manifest releases/slotward/1.1.0/manifest.json \\
      --pins sha256/...,sha256/...,sha256/... --threshold 2

"""
    + EXITS
)

KEYGEN = (
    """Writes the private key (mode 0600, encrypted) and beside it the public key, NAME.pub.pem, and
prints the key id and the pin. Nothing is overwritten. Hosts pin the key by [update] release_pins.
Without --passphrase-file the passphrase is asked for on the terminal, twice; an unencrypted key is
made only with --no-passphrase.

  slotward release keygen --output ana.pem
  slotward release keygen --output ben.pem --alg EdDSA --passphrase-file ben.txt

"""
    + EXITS
)

BUILD = (
    """Writes DIR/<product>/<version>/ with manifest.json (unsigned) and a copy of each artifact, named
<product>_<version>_<os>_<arch>. Building the same release again changes nothing; building
another one in its place is refused: a version is published once. The sequence must grow with
every release of the product, since hosts refuse what is below the highest they confirmed.

"""
    + EXITS
)

SIGN = (
    """Shows on standard error what is signed, asks (unless --yes), and adds one signature to the
manifest. The key must be one that the manifest lists. Signing twice changes nothing.

"""
    + EXITS
)

MERGE = (
    """All files must be the same manifest; the result has the signatures of all of them, and of the
output file when it is there. A signature that does not verify is refused.

"""
    + EXITS
)

VERIFY = (
    """Checks what a host with these pins checks: shape, signatures, canonical form, expiry. With
--artifact the files' size and SHA-256 too. Changes nothing.

"""
    + EXITS
)


def parser() -> argparse.ArgumentParser:
    """The whole command line of `slotward release`."""
    top = argparse.ArgumentParser(
        prog="slotward release",
        description="Makes signed releases and checks them.",
        epilog=TOUR,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subs = top.add_subparsers(dest="action", metavar="COMMAND", required=True)
    _keygen(_add(subs, "keygen", "make a release key", KEYGEN))
    _build(_add(subs, "build", "write a release's manifest and files", BUILD))
    _sign(_add(subs, "sign", "add one signature", SIGN))
    _merge(_add(subs, "merge", "put signatures made apart together", MERGE))
    _verify(_add(subs, "verify", "check a release as a host would", VERIFY))
    return top


def _add(
    subs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, line: str, more: str
) -> argparse.ArgumentParser:
    sub = subs.add_parser(
        name,
        help=line,
        description=f"{line[0].upper()}{line[1:]}.",
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    return sub


def _keygen(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--output", required=True, metavar="NAME.pem", help="the private key's file, which must not be there"
    )
    sub.add_argument("--alg", choices=keys.ALGORITHMS, default=keys.ES256, help="default: %(default)s")
    lock = sub.add_mutually_exclusive_group()
    _passphrase(lock, "encrypt the private key with the first line of this file (default: ask on the terminal, twice)")
    lock.add_argument("--no-passphrase", action="store_true", help="leave the private key unencrypted")


def _build(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--product", required=True, help="a-z, 0-9 and -, a letter first")
    sub.add_argument("--version", required=True, help="semantic version, such as 1.4.0")
    sub.add_argument("--sequence", required=True, type=_positive, metavar="N", help="higher than every release before")
    sub.add_argument(
        "--key", required=True, action="append", metavar="PUB.pem", help="a public key that may sign, 1 to 16 times"
    )
    sub.add_argument(
        "--artifact",
        required=True,
        action="append",
        metavar="FILE[:OS-ARCH]",
        help="a program; its platform is read from a name that ends in _os_arch",
    )
    sub.add_argument("--output", required=True, metavar="DIR", help="the base of all releases")
    sub.add_argument(
        "--expires-days", type=_days, default=365, metavar="N", help="hosts refuse it after that (default: 365)"
    )
    sub.add_argument("--channel", default=manifest.DEFAULT_CHANNEL, help="default: %(default)s")
    sub.add_argument("--min-from", metavar="VERSION", help="releases below this one must pass a stepping stone first")
    sub.add_argument(
        "--issued-at", type=_time, default=_now(), metavar="TIME", help="such as 2026-01-31T12:00:00Z (default: now)"
    )


def _sign(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--manifest", required=True, metavar="FILE", help="the manifest to sign, in place")
    sub.add_argument("--key", required=True, metavar="KEY.pem", help="the private key")
    sub.add_argument("--yes", action="store_true", help="do not ask")
    _passphrase(sub, "the first line of this file opens the private key (default: ask on the terminal)")


def _merge(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--output", required=True, metavar="FILE", help="where the merged manifest goes")
    sub.add_argument("file", nargs="+", metavar="FILE", help="a signed copy of the manifest")


def _verify(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--manifest", required=True, metavar="FILE", help="the published manifest")
    pins = sub.add_mutually_exclusive_group(required=True)
    pins.add_argument("--pins", metavar="LIST", help="comma-separated sha256/<base64>")
    pins.add_argument("--pins-file", metavar="FILE", help="the same in a file, by commas, blanks or lines")
    sub.add_argument(
        "--threshold", type=_positive, default=1, metavar="N", help="distinct pinned keys needed (default: 1)"
    )
    sub.add_argument("--artifact", action="append", default=[], metavar="FILE", help="check this file too; repeatable")
    sub.add_argument(
        "--at", type=_time, default=_now(), metavar="TIME", help="judge expiry at this time (default: now)"
    )


def _passphrase(sub: argparse._ActionsContainer, text: str) -> None:
    sub.add_argument("--passphrase-file", metavar="FILE", help=text)


def _now() -> int:
    return int(time.time())


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15 and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


def _days(text: str) -> int:
    found = _positive(text)
    if found > 36500:
        raise argparse.ArgumentTypeError(f"{found} days; at most 36500 are taken")
    return found


def _time(text: str) -> int:
    try:
        return rfc3339.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
