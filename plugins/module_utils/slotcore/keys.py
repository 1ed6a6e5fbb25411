# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys of releases: the only file that knows the library cryptography (3.3 to 50).

Rules:

* Two algorithms: ``ES256`` (ECDSA on P-256 with SHA-256, signatures r||s of 64 bytes as in IEEE P1363) and
  ``EdDSA`` (Ed25519).
* A public key is its SPKI in DER; a pin is ``sha256/<base64 of the SPKI's SHA-256>``; the key id that our tools give
  is the same hash in base64url without padding.
* The library is imported inside functions and no more of it than the call needs; without it ``Unavailable`` says what
  to install. Nothing else here needs it.
* Private keys are written as PKCS#8 in PEM, encrypted when a passphrase is given, and read as OpenSSL writes them.
  Errors never show key material.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any, NamedTuple, Optional, Tuple

from . import canonical, manifest, pem

ES256 = "ES256"
EDDSA = "EdDSA"
ALGORITHMS = (ES256, EDDSA)
SIGNATURE_BYTES = 64

_PIN = "sha256/"
_DER = b"\x30"


class Unavailable(Exception):
    """The library cryptography is missing here, or too old for this."""


class BadKey(ValueError):
    """What should be a key is none that a release takes."""


class Locked(BadKey):
    """The private key is encrypted and no passphrase was given."""


class PublicKey(NamedTuple):
    """A public key by its algorithm and SPKI."""

    alg: str
    spki: bytes

    @property
    def kid(self) -> str:
        """The key id that our tools give it."""
        return kid_of(self.spki)

    @property
    def pin(self) -> str:
        """What a host's configuration pins."""
        return pin_of(self.spki)


class PrivateKey(NamedTuple):
    """A private key and its public half."""

    public: PublicKey
    handle: Any

    def sign(self, message: bytes) -> bytes:
        """The signature of `message`: 64 bytes for both algorithms."""
        if self.public.alg == EDDSA:
            return bytes(self.handle.sign(message))
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, utils

        r, s = utils.decode_dss_signature(self.handle.sign(message, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    def pem(self, passphrase: Optional[bytes] = None) -> bytes:
        """PKCS#8 in PEM, encrypted when there is a passphrase."""
        from cryptography.hazmat.primitives import serialization as forms

        lock = forms.BestAvailableEncryption(passphrase) if passphrase else forms.NoEncryption()
        return bytes(self.handle.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, lock))


def kid_of(spki: bytes) -> str:
    """The key id of a public key in DER."""
    return base64.urlsafe_b64encode(hashlib.sha256(spki).digest()).decode("ascii").rstrip("=")


def pin_of(spki: bytes) -> str:
    """The pin of a public key in DER."""
    return _PIN + base64.b64encode(hashlib.sha256(spki).digest()).decode("ascii")


def parse_pins(text: str) -> Tuple[str, ...]:
    """The distinct pins of a comma-separated list, in their order; none for a blank text.

    Raises:
        ValueError: naming the entry and what a pin looks like.

    """
    found = []
    for number, entry in enumerate(text.split(",") if text.strip() else (), start=1):
        pin = entry.strip()
        if not is_pin(pin):
            raise ValueError("pin %d is %s, not sha256/<base64 of 32 bytes>" % (number, ascii(pin)[:80]))
        if pin not in found:
            found.append(pin)
    return tuple(found)


def is_pin(text: str) -> bool:
    """True when `text` is one pin."""
    try:
        return text.startswith(_PIN) and len(canonical.decode_base64(text[len(_PIN) :])) == hashlib.sha256().digest_size
    except ValueError:
        return False


def require() -> None:
    """Raise Unavailable unless the library is here."""
    try:
        import cryptography.exceptions
    except ImportError as error:
        raise Unavailable(
            "the Python library cryptography (3.3 or later) is missing (%s); install python3-cryptography" % error
        ) from None
    del cryptography


def verify(alg: str, spki: bytes, message: bytes, signature: bytes) -> bool:
    """True when `signature` is one of `message` by the key `spki`.

    Raises:
        Unavailable: the library is missing, or too old for this algorithm.

    """
    if manifest.alg_of(spki) != alg or len(signature) != SIGNATURE_BYTES:
        return False
    require()
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    raw = spki[len(manifest.SPKI_SHAPES[alg][0]) :]
    try:
        if alg == EDDSA:
            from cryptography.hazmat.primitives.asymmetric import ed25519

            ed25519.Ed25519PublicKey.from_public_bytes(raw).verify(signature, message)
        else:
            _verify_es256(raw, message, signature)
    except UnsupportedAlgorithm as error:
        raise Unavailable("the Python library cryptography here cannot verify %s: %s" % (alg, error)) from None
    except (InvalidSignature, ValueError):
        return False
    return True


def _verify_es256(point: bytes, message: bytes, signature: bytes) -> None:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, utils

    key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), b"\x04" + point)
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    key.verify(utils.encode_dss_signature(r, s), message, ec.ECDSA(hashes.SHA256()))


def generate(alg: str) -> PrivateKey:
    """A new private key."""
    require()
    if alg == EDDSA:
        from cryptography.hazmat.primitives.asymmetric import ed25519

        return _private(ed25519.Ed25519PrivateKey.generate())
    if alg == ES256:
        from cryptography.hazmat.primitives.asymmetric import ec

        return _private(ec.generate_private_key(ec.SECP256R1()))
    raise BadKey("%s is not one of %s" % (ascii(alg), ", ".join(ALGORITHMS)))


def load_private(data: bytes, passphrase: Optional[bytes] = None) -> PrivateKey:
    """The private key in `data`: PEM or DER, PKCS#8 or SEC1, encrypted or not."""
    require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as forms

    load, block = forms.load_der_private_key, data
    if not data.startswith(_DER):
        label, block, _inside = _block(data)
        if "PRIVATE KEY" not in label:
            hint = ": give its NAME.pem" if label == "PUBLIC KEY" else ""
            raise BadKey("found %s, not a private key%s" % (label, hint))
        load = forms.load_pem_private_key
    try:
        return _private(load(block, passphrase or None))
    except TypeError:
        if passphrase:
            raise BadKey("the private key is not encrypted, yet a passphrase is given") from None
        raise Locked("the private key is encrypted: its passphrase is needed") from None
    except BadKey:
        raise
    except (ValueError, UnsupportedAlgorithm):
        wrong = "with this passphrase" if passphrase else "as PKCS#8 or SEC1, in PEM or DER"
        raise BadKey("the private key cannot be read %s" % wrong) from None


def load_public(data: bytes) -> PublicKey:
    """The public key in `data`, PEM or DER; a private key is refused, since it has no business where one is asked for."""
    if data.startswith(_DER):
        return public(data)
    block = _block(data)
    if block.label != "PUBLIC KEY":
        raise BadKey("found %s, not a public key: give its NAME.pub.pem" % block.label)
    try:
        spki = block.der()
    except ValueError as error:
        raise BadKey("the public key cannot be read: %s" % error) from None
    return public(spki)


def public(spki: bytes) -> PublicKey:
    """The public key with this SPKI."""
    alg = manifest.alg_of(spki)
    if alg is None:
        raise BadKey("the key is neither P-256 (uncompressed) nor Ed25519")
    return PublicKey(alg, spki)


def public_pem(key: PublicKey) -> bytes:
    """A public key in PEM."""
    return pem.write("PUBLIC KEY", key.spki)


def _block(data: bytes) -> pem.Block:
    found = pem.find(data)
    if found is None:
        raise BadKey("no PEM block with a key in it (-----BEGIN PUBLIC KEY----- or PRIVATE KEY), and no DER")
    return found


def _private(handle: Any) -> PrivateKey:
    from cryptography.hazmat.primitives import serialization as forms

    spki = handle.public_key().public_bytes(forms.Encoding.DER, forms.PublicFormat.SubjectPublicKeyInfo)
    return PrivateKey(public(spki), handle)
