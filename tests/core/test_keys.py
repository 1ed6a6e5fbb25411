# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys, pins and signatures, held against published vectors and against the openssl command."""

from __future__ import annotations

import base64
import hashlib
import pathlib
import shutil
import subprocess
import sys
from typing import Set, Tuple

import pytest
from core import making
from hypothesis import given
from hypothesis import strategies as st

from slotcore import keys, manifest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not on this machine")
MESSAGE = b"what is signed\0\xff"


def spki(alg: str, raw: str) -> bytes:
    """The SPKI of a raw public key in hexadecimal."""
    return manifest.SPKI_SHAPES[alg][0] + bytes.fromhex(raw)


def openssl(*arguments: object) -> bytes:
    """Run openssl, which must succeed."""
    return subprocess.run(
        ["openssl", *(str(one) for one in arguments)], check=True, capture_output=True, timeout=60
    ).stdout


def der_to_p1363(der: bytes) -> bytes:
    """r||s of an ECDSA signature in DER, read by hand."""
    assert der[0] == 0x30
    assert der[1] == len(der) - 2
    found, rest = b"", der[2:]
    for _time in range(2):
        assert rest[0] == 2
        number, rest = rest[2 : 2 + rest[1]], rest[2 + rest[1] :]
        found += int.from_bytes(number, "big").to_bytes(32, "big")
    assert rest == b""
    return found


def p1363_to_der(signature: bytes) -> bytes:
    """The other way."""
    numbers = b""
    for half in (signature[:32], signature[32:]):
        number = int.from_bytes(half, "big")
        raw = number.to_bytes(number.bit_length() // 8 + 1, "big")
        numbers += bytes([2, len(raw)]) + raw
    return bytes([0x30, len(numbers)]) + numbers


# RFC 6979, A.2.5: P-256 with SHA-256
P256 = (
    "60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6"
    "7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299"
)
# RFC 8032, 7.1: TEST 1 and TEST 3
ED_1 = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
ED_3 = "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"
VECTORS = [
    (
        "ES256",
        P256,
        b"sample",
        (
            "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716"
            "f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8"
        ),
    ),
    (
        "ES256",
        P256,
        b"test",
        (
            "f1abb023518351cd71d881567b1ea663ed3efcf6c5132b354f28d3b0b7d38367"
            "019f4113742a2b14bd25926b49c649155f267e60d3814b4c0cc84250e46f0083"
        ),
    ),
    (
        "EdDSA",
        ED_1,
        b"",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555"
            "fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
        ),
    ),
    (
        "EdDSA",
        ED_3,
        b"\xaf\x82",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
            "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
        ),
    ),
]


@pytest.mark.parametrize(("alg", "raw", "message", "signature"), VECTORS)
def test_published_vectors_verify(alg: str, raw: str, message: bytes, signature: str) -> None:
    """The RFCs' own keys, messages and signatures, and nothing a bit away from them."""
    sig = bytes.fromhex(signature)
    assert keys.verify(alg, spki(alg, raw), message, sig)
    assert not keys.verify(alg, spki(alg, raw), message + b"x", sig)
    for at in (0, 31, 32, 63):
        assert not keys.verify(alg, spki(alg, raw), message, sig[:at] + bytes([sig[at] ^ 1]) + sig[at + 1 :])


@needs_openssl
@pytest.mark.parametrize("passphrase", [None, b"right"])
@pytest.mark.parametrize("alg", keys.ALGORITHMS)
def test_keys_and_signatures_of_openssl_are_taken(tmp_path: pathlib.Path, alg: str, passphrase: bytes) -> None:
    """A key that openssl makes, plain or encrypted, signs for us, and we sign for it."""
    plain, key, public, message, signature = (tmp_path / name for name in ("plain", "key", "pub", "message", "sig"))
    kind = ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"] if alg == keys.ES256 else ["ED25519"]
    openssl("genpkey", "-algorithm", *kind, "-out", plain)
    lock = ["-v2", "aes-256-cbc", "-passout", "pass:right"] if passphrase else ["-nocrypt"]
    openssl("pkcs8", "-topk8", "-in", plain, "-out", key, *lock)
    openssl("pkey", "-in", plain, "-pubout", "-out", public)
    message.write_bytes(MESSAGE)
    sign = ["pkeyutl", "-sign", "-rawin", "-inkey", plain, "-in", message, "-out", signature]
    openssl(*(sign if alg == keys.EDDSA else ["dgst", "-sha256", "-sign", plain, "-out", signature, message]))
    ours = keys.load_private(key.read_bytes(), passphrase)
    theirs = keys.load_public(public.read_bytes())
    assert ours.public == theirs
    assert theirs.spki == openssl("pkey", "-pubin", "-in", public, "-outform", "DER")
    made = signature.read_bytes()
    assert keys.verify(alg, theirs.spki, MESSAGE, made if alg == keys.EDDSA else der_to_p1363(made))
    assert alg == keys.EDDSA or not keys.verify(alg, theirs.spki, MESSAGE, made), "DER is not P1363"
    sig = ours.sign(MESSAGE)
    signature.write_bytes(sig if alg == keys.EDDSA else p1363_to_der(sig))
    check = ["pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", public, "-in", message, "-sigfile", signature]
    openssl(*(check if alg == keys.EDDSA else ["dgst", "-sha256", "-verify", public, "-signature", signature, message]))


@needs_openssl
def test_the_pin_is_what_openssl_computes(tmp_path: pathlib.Path) -> None:
    """The recipe of the documentation gives our pin."""
    public = tmp_path / "pub"
    public.write_bytes(keys.public_pem(making.key(1).public))
    (tmp_path / "der").write_bytes(openssl("pkey", "-pubin", "-in", public, "-outform", "DER"))
    digest = openssl("dgst", "-sha256", "-binary", tmp_path / "der")
    assert making.key(1).public.pin == "sha256/" + base64.b64encode(digest).decode()
    assert making.key(1).public.kid == base64.urlsafe_b64encode(digest).decode().rstrip("=")


@needs_openssl
def test_an_old_style_key_file_is_taken(tmp_path: pathlib.Path) -> None:
    """EC PARAMETERS before EC PRIVATE KEY, as `openssl ecparam -genkey` writes them."""
    pem = openssl("ecparam", "-name", "prime256v1", "-genkey")
    assert pem.startswith(b"-----BEGIN EC PARAMETERS-----")
    key = keys.load_private(pem)
    assert keys.verify("ES256", key.public.spki, MESSAGE, key.sign(MESSAGE))


@needs_openssl
@pytest.mark.parametrize(
    "kind", [["RSA", "-pkeyopt", "rsa_keygen_bits:2048"], ["EC", "-pkeyopt", "ec_paramgen_curve:P-384"], ["ED448"]]
)
def test_other_kinds_of_keys_are_refused(kind: Tuple[str, ...]) -> None:
    """Private and public, by name of what is taken."""
    pem = openssl("genpkey", "-algorithm", *kind)
    with pytest.raises(keys.BadKey, match="neither P-256"):
        keys.load_private(pem)
    public = subprocess.run(["openssl", "pkey", "-pubout"], input=pem, check=True, capture_output=True).stdout
    with pytest.raises(keys.BadKey, match="neither P-256"):
        keys.load_public(public)


@pytest.mark.parametrize("alg", keys.ALGORITHMS)
@pytest.mark.parametrize("passphrase", [None, b"", b"correct horse"])
def test_a_key_is_written_and_read_again(alg: str, passphrase: bytes) -> None:
    """Private, encrypted or not, and public."""
    key = keys.generate(alg)
    assert key.public.alg == alg
    pem = key.pem(passphrase)
    assert (b"ENCRYPTED" in pem) is bool(passphrase)
    again = keys.load_private(pem, passphrase)
    assert again.public == key.public
    assert keys.load_public(keys.public_pem(key.public)) == key.public
    assert keys.verify(alg, key.public.spki, MESSAGE, again.sign(MESSAGE))
    assert len(again.sign(MESSAGE)) == keys.SIGNATURE_BYTES


def test_small_numbers_keep_their_zeros() -> None:
    """One signature in 128 has an r or s below 2**248: signed until one has, it is 64 bytes too and verifies."""
    key = making.key(1)
    made = (key.sign(b"%d" % number) for number in range(10_000))
    number, small = next((number, one) for number, one in enumerate(made) if 0 in (one[0], one[32]))
    assert len(small) == keys.SIGNATURE_BYTES
    assert keys.verify("ES256", key.public.spki, b"%d" % number, small)


def test_passphrases_are_told_apart() -> None:
    """Missing, wrong, and not needed are three different answers, and none shows the key."""
    locked, open_ = making.key(1).pem(b"right"), making.key(1).pem()
    for pem, passphrase, text in (
        (locked, None, "the private key is encrypted: its passphrase is needed"),
        (locked, b"", "the private key is encrypted: its passphrase is needed"),
        (locked, b"wrong", "the private key cannot be read with this passphrase"),
        (open_, b"right", "the private key is not encrypted, yet a passphrase is given"),
    ):
        with pytest.raises(keys.BadKey) as error:
            keys.load_private(pem, passphrase)
        assert str(error.value) == text


@pytest.mark.parametrize(
    ("pem", "text"),
    [
        (b"", "no PEM block with a key in it"),
        (b"-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n", "no PEM block with a key in it"),
        (b"-----BEGIN PUBLIC KEY-----\nQQ==\n", "no PEM block with a key in it"),
        (b"-----BEGIN PUBLIC KEY-----\nQQ\n-----END PUBLIC KEY-----\n", "the public key cannot be read: not base64"),
        (b"-----BEGIN PUBLIC KEY-----\n\xff\n-----END PUBLIC KEY-----\n", "the public key cannot be read: 'ascii'"),
        (b"-----BEGIN PUBLIC KEY-----\nQQ==\n-----END PUBLIC KEY-----\n", "the key is neither P-256"),
        (b"-----BEGIN PRIVATE KEY-----\nQQ==\n-----END PRIVATE KEY-----\n", "found PRIVATE KEY, not a public key"),
        (b"0123", "the key is neither P-256"),
    ],
)
def test_a_file_without_a_key_is_refused(pem: bytes, text: str) -> None:
    """The error says what was looked for."""
    with pytest.raises(keys.BadKey) as error:
        keys.load_public(pem)
    assert str(error.value).startswith(text)


FORMS = (
    # what openssl calls it, and how it is written from a plain PKCS#8 file
    ("PKCS#8 PEM", ["pkey"]),
    ("PKCS#8 DER", ["pkey", "-outform", "DER"]),
    ("PKCS#8 PEM, encrypted", ["pkey", "-aes256", "-passout", "pass:right"]),
    ("PKCS#8 DER, encrypted", ["pkcs8", "-topk8", "-outform", "DER", "-passout", "pass:right"]),
    ("SEC1 PEM", ["ec"]),
    ("SEC1 DER", ["ec", "-outform", "DER"]),
    ("SEC1 PEM, encrypted", ["ec", "-aes256", "-passout", "pass:right"]),
)


@needs_openssl
@pytest.mark.parametrize("alg", keys.ALGORITHMS)
@pytest.mark.parametrize(("form", "command"), FORMS)
def test_every_form_that_openssl_writes_is_read(
    tmp_path: pathlib.Path, form: str, command: Tuple[str, ...], alg: str
) -> None:
    """Private keys by their bytes alone; an encrypted one says that it is, and a public one is read in DER too."""
    if alg == keys.EDDSA and form.startswith("SEC1"):
        pytest.skip("SEC1 is for elliptic curve keys of the older kind only")
    key = making.key(1 if alg == keys.ES256 else 2, alg)
    (tmp_path / "plain").write_bytes(key.pem())
    data = openssl(*command, "-in", tmp_path / "plain")
    if "encrypted" in form:
        with pytest.raises(keys.Locked, match="its passphrase is needed"):
            keys.load_private(data)
        with pytest.raises(keys.BadKey, match="cannot be read with this passphrase"):
            keys.load_private(data, b"wrong")
        assert keys.load_private(data, b"right").public == key.public
    else:
        assert keys.load_private(data).public == key.public
        with pytest.raises(keys.BadKey, match="not encrypted, yet a passphrase is given"):
            keys.load_private(data, b"right")
    assert keys.load_public(key.public.spki) == key.public
    with pytest.raises(keys.BadKey):
        keys.load_public(data)


@pytest.mark.parametrize(
    "data", [b"0", b"0\x82\x01", b"-----BEGIN PRIVATE KEY-----\nQQ==\n-----END PRIVATE KEY-----\n"]
)
def test_what_is_no_private_key_is_refused(data: bytes) -> None:
    """Named by the forms that are read."""
    with pytest.raises(keys.BadKey, match=r"^the private key cannot be read as PKCS#8 or SEC1, in PEM or DER$"):
        keys.load_private(data)


def test_a_public_key_signs_nothing() -> None:
    """Where a private key is needed, the label says what was found."""
    with pytest.raises(keys.BadKey, match=r"^found PUBLIC KEY, not a private key: give its NAME\.pem$"):
        keys.load_private(keys.public_pem(making.key(1).public))


def test_an_unknown_algorithm_is_not_generated() -> None:
    """The error lists the two."""
    with pytest.raises(keys.BadKey, match=r"^'RS256' is not one of ES256, EdDSA$"):
        keys.generate("RS256")


@pytest.mark.parametrize("signature", [b"", b"\0" * 64, b"\xff" * 64, b"\0" * 63, b"\1" * 65])
@pytest.mark.parametrize("alg", keys.ALGORITHMS)
def test_what_is_no_signature_does_not_verify(alg: str, signature: bytes) -> None:
    """Wrong lengths, zero, and numbers beyond the group's order."""
    key = making.key(1 if alg == keys.ES256 else 2, alg)
    assert not keys.verify(alg, key.public.spki, MESSAGE, signature)


def test_a_key_of_the_other_algorithm_does_not_verify() -> None:
    """The algorithm that the manifest says is the key's own."""
    key = making.key(2, keys.EDDSA)
    assert not keys.verify(keys.ES256, key.public.spki, MESSAGE, key.sign(MESSAGE))
    assert not keys.verify("none", key.public.spki, MESSAGE, key.sign(MESSAGE))


def test_a_point_that_is_not_on_the_curve_does_not_verify() -> None:
    """Such a key passes the shape and must fail here."""
    assert not keys.verify(keys.ES256, spki("ES256", "00" * 31 + "01" + "00" * 31 + "01"), MESSAGE, b"\1" * 64)


@given(st.binary(min_size=64, max_size=64))
def test_random_bytes_are_no_signature(signature: bytes) -> None:
    """And raise nothing."""
    for key in making.three():
        assert not keys.verify(key.public.alg, key.public.spki, MESSAGE, signature)


def test_pins_are_read_in_order_and_once() -> None:
    """Blanks around them are fine; the same pin twice is one."""
    one, two, three = making.pins()
    assert keys.parse_pins(" %s,%s , %s,%s" % (one, two, one, three)) == (one, two, three)
    assert keys.parse_pins("") == keys.parse_pins("  ") == ()


@pytest.mark.parametrize(
    "pin",
    [
        "",
        "sha256/",
        "sha256/QQ==",
        "sha1/" + "A" * 43 + "=",
        "SHA256/" + "A" * 43 + "=",
        "sha256/" + "A" * 42 + "B=",
        "sha256/" + "A" * 43,
        "\u00e9",
    ],
)
def test_what_is_no_pin_is_refused(pin: str) -> None:
    """The error counts the entry and shows what one looks like."""
    good = making.key(1).public.pin
    with pytest.raises(ValueError, match=r"^pin 2 is .*, not sha256/<base64 of 32 bytes>$"):
        keys.parse_pins(good + "," + pin)
    assert not keys.is_pin(pin)
    assert keys.is_pin("sha256/" + base64.b64encode(hashlib.sha256(b"").digest()).decode())


def test_without_the_library_the_error_says_what_to_install() -> None:
    """In a process where it cannot be imported: verify and generate say so, all else goes on."""
    program = """
import sys
sys.modules["cryptography"] = None
from slotcore import canonical, checks, codes, keys, manifest, release, signatures
spki = manifest.SPKI_SHAPES["EdDSA"][0] + bytes(range(32))
assert keys.load_public(keys.public_pem(keys.public(spki))).spki == spki
assert keys.parse_pins(keys.pin_of(spki)) == (keys.pin_of(spki),)
for call in (lambda: keys.generate("EdDSA"), lambda: keys.verify("EdDSA", spki, b"", bytes(64)),
             lambda: keys.load_private(b"")):
    try:
        call()
    except keys.Unavailable as error:
        print(error)
"""
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.stderr == ""
    assert len(run.stdout.splitlines()) == 3
    for line in run.stdout.splitlines():
        assert line.startswith("the Python library cryptography (3.3 or later) is missing (")
        assert line.endswith("; install python3-cryptography")


def test_a_library_that_cannot_be_imported_is_told_by_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, with what Python said in the text."""
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(keys.Unavailable, match=r"is missing \(import of cryptography\.exceptions halted"):
        keys.require()


def test_a_library_without_the_algorithm_is_told_from_a_bad_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old OpenSSL has no Ed25519: that is not a forged release."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ed25519

    def unsupported(_raw: bytes) -> None:
        raise UnsupportedAlgorithm("ed25519 is not supported by this version of OpenSSL")

    key = making.key(2, keys.EDDSA)
    signature = key.sign(MESSAGE)
    monkeypatch.setattr(ed25519.Ed25519PublicKey, "from_public_bytes", unsupported)
    with pytest.raises(keys.Unavailable, match="cannot verify EdDSA: ed25519 is not supported"):
        keys.verify(keys.EDDSA, key.public.spki, MESSAGE, signature)


def loaded_by(program: str) -> Set[str]:
    """The modules of the library that a program loads."""
    tail = 'import sys; print(*(name for name in sys.modules if name.startswith("cryptography")))'
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    command = [sys.executable, "-c", program + tail]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert run.stderr == ""
    return set(run.stdout.split())


def test_verifying_loads_no_more_than_it_needs() -> None:
    """Nothing at import; then what the curve itself loads, and not the readers of key files, which cost as much again."""
    assert loaded_by("from slotcore import canonical, checks, release\n") == set()
    bare = """
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
try:
    ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), bytes([4]) + bytes(64))
except ValueError:
    pass
"""
    ours = """
from slotcore import keys, manifest
keys.verify("ES256", manifest.SPKI_SHAPES["ES256"][0] + bytes(64), b"", bytes(64))
"""
    found = loaded_by(ours)
    assert "cryptography.hazmat.primitives.asymmetric.ec" in found
    assert found <= loaded_by(bare)
