# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the vectors anew, with other people's tools: make.py [DIRECTORY]. Nothing of ours is imported here.

- Keys, SPKIs, pins and signatures: the ``openssl`` command. Times: ``date``. Canonical form: the packages ``rfc8785`` and
  ``jcs`` from PyPI, which must agree. TOML: ``tomllib``. Run it where these are: ``pip install rfc8785 jcs``, Python 3.11.
- What is to be accepted and what refused is said here by hand, case by case; the code under test has no say in it.
- Facts from elsewhere: RFC 8032 (7.1), RFC 6979 (A.2.5), RFC 8785 (3.2.3), semver.org's lists of good and bad versions.
- Private keys are made for the run and thrown away.
"""

from __future__ import annotations

import base64
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any, Callable, Dict, List, Sequence, Tuple

import tomllib

HERE = pathlib.Path(__file__).resolve().parent
PREFIX = {
    "release": b"slotward.release-manifest\0",
    "key-set": b"slotward.key-set\0",
    "downgrade-permit": b"slotward.downgrade-permit\0",
    "withdrawal": b"slotward.withdrawal\0",
}
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
L = 2**252 + 27742317777372353535851937790883648493
Case = Dict[str, Any]


def b64(data: bytes) -> str:
    """Base64 as text."""
    return base64.b64encode(data).decode("ascii")


def run(*words: object, data: bytes = b"") -> bytes:
    """Run a command, which must succeed."""
    return subprocess.run([str(word) for word in words], input=data, check=True, capture_output=True, timeout=60).stdout


def canonical(value: object) -> bytes:
    """The canonical form, by two implementations that must agree."""
    import jcs  # type: ignore[import-not-found]
    import rfc8785  # type: ignore[import-not-found]

    one, other = rfc8785.dumps(value), jcs.canonicalize(value)
    if one != other:
        raise SystemExit("rfc8785 and jcs differ on %r" % (value,))
    return bytes(one)


class Key:
    """A key of openssl's making."""

    def __init__(self, directory: pathlib.Path, name: str, *kind: str) -> None:
        self.file = directory / (name + ".pem")
        self.directory = directory
        run("openssl", "genpkey", "-out", self.file, "-algorithm", *kind)
        self.alg = "EdDSA" if kind[0] == "ED25519" else "ES256"
        self.spki = self.public()

    def public(self, *more: str) -> bytes:
        """Its SPKI in DER, in another encoding if wanted."""
        return run("openssl", "pkey", "-in", self.file, "-pubout", "-outform", "DER", *more)

    def sign(self, message: bytes) -> bytes:
        """64 bytes."""
        file = self.directory / "message"
        file.write_bytes(message)
        if self.alg == "EdDSA":
            return run("openssl", "pkeyutl", "-sign", "-rawin", "-inkey", self.file, "-in", file)
        return p1363(*numbers(self.der(message)))

    def der(self, message: bytes) -> bytes:
        """An ECDSA signature as openssl writes it."""
        return run("openssl", "dgst", "-sha256", "-sign", self.file, data=message)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the SPKI, by openssl."""
        return run("openssl", "dgst", "-sha256", "-binary", data=self.spki)

    @property
    def pin(self) -> str:
        """What a host pins."""
        return "sha256/" + b64(self.digest)

    @property
    def kid(self) -> str:
        """A label."""
        return self.digest.hex()[:16]

    def listed(self, **changes: object) -> Dict[str, object]:
        """As a manifest lists it."""
        return {"kid": self.kid, "alg": self.alg, "spki": b64(self.spki), **changes}


def numbers(der: bytes) -> List[int]:
    """r and s of an ECDSA signature in DER."""
    found, rest = [], der[2:]
    while rest:
        found.append(int.from_bytes(rest[2 : 2 + rest[1]], "big"))
        rest = rest[2 + rest[1] :]
    return found


def p1363(r: int, s: int) -> bytes:
    """The two numbers as 64 bytes."""
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


class Bench:
    """Three pinned keys, a stranger's, and odd ones."""

    def __init__(self, directory: pathlib.Path) -> None:
        p256 = ("EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-pkeyopt", "ec_param_enc:named_curve")
        self.one = Key(directory, "one", *p256)
        self.two = Key(directory, "two", "ED25519")
        self.three = Key(directory, "three", *p256)
        self.stranger = Key(directory, "stranger", "ED25519")
        self.k1 = Key(directory, "k1", "EC", "-pkeyopt", "ec_paramgen_curve:secp256k1")
        self.p384 = Key(directory, "p384", "EC", "-pkeyopt", "ec_paramgen_curve:P-384")
        self.x25519 = Key(directory, "x25519", "X25519")
        self.ed448 = Key(directory, "ed448", "ED448")
        self.rsa = Key(directory, "rsa", "RSA", "-pkeyopt", "rsa_keygen_bits:2048")

    @property
    def pins(self) -> List[str]:
        """What the host pins."""
        return [key.pin for key in (self.one, self.two, self.three)]


def body_fields(bench: Bench, **changes: object) -> Dict[str, object]:
    """A good body, changed; None takes a field away."""
    plain: Dict[str, object] = {
        "type": "slotward.release",
        "spec": 1,
        "product": "toy",
        "version": "1.1.0",
        "sequence": 5,
        "issuedAt": "2026-01-01T00:00:00Z",
        "expiresAt": "2027-01-01T00:00:00Z",
        "keys": [key.listed() for key in (bench.one, bench.two, bench.three)],
        "artifacts": [{"name": "toy_1.1.0_linux_amd64", "platform": "linux-amd64", "sha256": "ab" * 32, "size": 12}],
        **changes,
    }
    return {key: value for key, value in plain.items() if value is not None}


def other_fields(bench: Bench, kind: str) -> Dict[str, object]:
    """A good body of another kind."""
    own: Dict[str, Dict[str, object]] = {
        "key-set": {"expiresAt": "2027-01-01T00:00:00Z", "pins": bench.pins, "sequence": 1, "threshold": 2},
        "downgrade-permit": {
            "expiresAt": "2027-01-01T00:00:00Z",
            "hosts": ["0123456789abcdef" * 2],
            "id": "00112233445566aa",
            "sequence": 4,
            "version": "1.0.0",
        },
        "withdrawal": {"sequence": 5, "version": "1.1.0", "why": "loses mail"},
    }
    plain = body_fields(bench)
    common = {key: plain[key] for key in ("issuedAt", "keys", "product", "spec")}
    return {**common, **own[kind], "type": "slotward." + kind}


def signed(key: Key, body: bytes, kind: str = "release", kid: str = "") -> Dict[str, str]:
    """A signature as the published form has it."""
    return {"kid": kid or key.kid, "sig": b64(key.sign(PREFIX[kind] + body))}


def published(body: bytes, *entries: Dict[str, str]) -> str:
    """The published form."""
    return json.dumps({"manifest": b64(body), "signatures": entries})


def signature_cases(bench: Bench) -> List[Case]:
    """Published documents, a host's pins and threshold, and who signed or the code of the refusal."""
    one, two, three, stranger = bench.one, bench.two, bench.three, bench.stranger
    body = canonical(body_fields(bench))
    cases: List[Case] = []

    def case(name: str, text: str, taken: Sequence[Key] = (), refused: str = "", **more: object) -> None:
        found: Case = {"name": name, "published": text, "pins": bench.pins, "threshold": 2, "kind": "release", **more}
        found["refused" if refused else "signers"] = refused or sorted(key.pin for key in taken)
        cases.append(found)

    for some in [*itertools.combinations((one, two, three), 2), (one, two, three)]:
        case("signed by %d of three" % len(some), published(body, *(signed(key, body) for key in some)), some)
    few = "too-few-signatures"
    case("nobody signed", published(body), refused=few)
    case("one signed twice", published(body, signed(one, body), signed(one, body)), refused=few)
    case("one is enough for a threshold of 1", published(body, signed(one, body)), [one], threshold=1)
    case("a threshold of 0 is 1", published(body), refused=few, threshold=0)
    case("one pin twice", published(body, signed(one, body)), refused=few, pins=[one.pin, one.pin])
    case("a stranger signed", published(body, signed(one, body), signed(stranger, body)), refused=few)
    case(
        "a stranger under a pinned key's id",
        published(body, signed(one, body), signed(stranger, body, kid=two.kid)),
        refused=few,
    )
    case(
        "ids changed about",
        published(body, signed(one, body, kid=two.kid), signed(two, body, kid=one.kid)),
        refused=few,
    )
    junk = {"kid": "x", "sig": ""}
    case(
        "14 signatures of junk before two",
        published(body, *[junk] * 14, signed(one, body), signed(two, body)),
        [one, two],
    )
    case(
        "15 signatures of junk before two",
        published(body, *[junk] * 15, signed(one, body), signed(two, body)),
        refused=few,
    )
    for kind in ("key-set", "downgrade-permit", "withdrawal"):
        wrong = published(body, signed(one, body, kind), signed(two, body, kind))
        case("signed for a %s" % kind, wrong, refused=few)
        other = canonical(other_fields(bench, kind))
        good = published(other, signed(one, other, kind), signed(two, other, kind))
        case("a genuine %s" % kind, good, [one, two], kind=kind)
        case("a %s in a release's place" % kind, good, refused="bad-manifest")
        case(
            "a release in a %s's place" % kind,
            published(body, signed(one, body), signed(two, body)),
            refused="bad-document",
            kind=kind,
        )
        case(
            "a %s signed as a release" % kind,
            published(other, signed(one, other), signed(two, other)),
            refused=few,
            kind=kind,
        )
    mixed = canonical(body_fields(bench, keys=[one.listed(), stranger.listed()]))
    case("mixed keys", published(mixed, signed(one, mixed), signed(stranger, mixed)), refused=few)
    twice = canonical(body_fields(bench, keys=[one.listed(), one.listed(kid="other")]))
    case(
        "one key under two ids",
        published(twice, signed(one, twice), signed(one, twice, kid="other")),
        refused="bad-manifest",
    )
    unlisted = canonical(body_fields(bench, keys=[one.listed()]))
    case(
        "a pinned key that is not listed",
        published(unlisted, signed(one, unlisted), signed(two, unlisted)),
        refused=few,
    )
    spread = json.dumps(body_fields(bench), indent=1).encode()
    case("signed, not canonical", published(spread, signed(one, spread), signed(two, spread)), refused="not-canonical")
    case("neither canonical nor signed", published(spread), refused=few)
    for name, text in (
        ("a line end", published(body).replace('"signatures"', '"x":1,"signatures"')),
        ("a page", "<html>"),
    ):
        case("not the published form: " + name, text, refused="bad-manifest")
    for name, changed, refused in altered(bench, body):
        case(
            name,
            published(body, {"kid": changed[0].kid, "sig": b64(changed[1])}, signed(three, body)),
            refused=refused,
            taken=[changed[0], three],
        )
    for name, spki, alg in odd_keys(bench):
        odd = canonical(body_fields(bench, keys=[{"kid": "a", "alg": alg, "spki": b64(spki)}, two.listed()]))
        case("a key: " + name, published(odd, signed(two, odd)), refused="bad-manifest", threshold=1)
    return cases


def altered(bench: Bench, body: bytes) -> List[Tuple[str, Tuple[Key, bytes], str]]:
    """Signatures spelled otherwise, and the refusal; the last one is taken."""
    message, few = PREFIX["release"] + body, "too-few-signatures"
    der, ed = bench.one.der(message), bench.two.sign(message)
    r, s = numbers(der)
    spelled: List[Tuple[str, Key, bytes]] = [
        ("DER", bench.one, der),
        ("64 zero bytes", bench.one, bytes(64)),
        ("r = 0", bench.one, p1363(0, s)),
        ("s = 0", bench.one, p1363(r, 0)),
        ("r = n", bench.one, p1363(N, s)),
        ("s = n", bench.one, p1363(r, N)),
        ("n - r", bench.one, p1363(N - r, s)),
        ("one byte short", bench.one, p1363(r, s)[:63]),
        ("one byte long", bench.one, p1363(r, s) + b"\0"),
        ("without the purpose", bench.one, bench.one.sign(body)),
        ("Ed25519: S + L", bench.two, ed[:32] + (int.from_bytes(ed[32:], "little") + L).to_bytes(32, "little")),
        ("Ed25519: S = 0", bench.two, ed[:32] + bytes(32)),
        ("Ed25519: the neutral point", bench.two, b"\1" + bytes(63)),
        ("Ed25519: one byte short", bench.two, ed[:63]),
    ]
    found = [(name, (key, sig), few) for name, key, sig in spelled]
    return [*found, ("n - s, which verifies as well", (bench.one, p1363(r, N - s)), "")]


def odd_keys(bench: Bench) -> List[Tuple[str, bytes, str]]:
    """Keys in encodings and of kinds that no manifest takes, as openssl writes them."""
    one = bench.one
    return [
        ("compressed", one.public("-ec_conv_form", "compressed"), "ES256"),
        ("hybrid", one.public("-ec_conv_form", "hybrid"), "ES256"),
        ("explicit parameters", one.public("-ec_param_enc", "explicit"), "ES256"),
        ("a trailing byte", one.spki + b"\0", "ES256"),
        ("BER", one.spki[:1] + b"\x81" + one.spki[1:], "ES256"),
        ("secp256k1", bench.k1.spki, "ES256"),
        ("P-384", bench.p384.spki, "ES256"),
        ("X25519", bench.x25519.spki, "EdDSA"),
        ("Ed448", bench.ed448.spki, "EdDSA"),
        ("RSA", bench.rsa.spki, "ES256"),
        ("the other algorithm", bench.two.spki, "ES256"),
        ("small order", bench.two.spki[:12] + b"\1" + bytes(31), "EdDSA"),
        ("y = p + 3", bench.two.spki[:12] + (2**255 - 16).to_bytes(32, "little"), "EdDSA"),
    ]


def key_cases(bench: Bench) -> List[Case]:
    """An algorithm, a key, a message and a signature, and whether it verifies."""
    p256 = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004")
    ed = bytes.fromhex("302a300506032b6570032100")
    sample = p256 + bytes.fromhex(
        "60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6"
        "7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299"
    )
    known = [
        (
            "RFC 6979 A.2.5 sample",
            "ES256",
            sample,
            b"sample",
            (
                "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716"
                "f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8"
            ),
        ),
        (
            "RFC 6979 A.2.5 test",
            "ES256",
            sample,
            b"test",
            (
                "f1abb023518351cd71d881567b1ea663ed3efcf6c5132b354f28d3b0b7d38367"
                "019f4113742a2b14bd25926b49c649155f267e60d3814b4c0cc84250e46f0083"
            ),
        ),
        (
            "RFC 8032 7.1 test 1",
            "EdDSA",
            ed + bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"),
            b"",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "RFC 8032 7.1 test 2",
            "EdDSA",
            ed + bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"),
            b"\x72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        ),
        (
            "RFC 8032 7.1 test 3",
            "EdDSA",
            ed + bytes.fromhex("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"),
            b"\xaf\x82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
        ),
    ]
    cases: List[Case] = []

    def case(name: str, alg: str, spki: bytes, message: bytes, sig: bytes, verifies: bool) -> None:
        cases.append(
            {
                "name": name,
                "alg": alg,
                "spki": b64(spki),
                "message": b64(message),
                "sig": b64(sig),
                "verifies": verifies,
            }
        )

    for name, alg, spki, message, text in known:
        sig = bytes.fromhex(text)
        case(name, alg, spki, message, sig, True)
        case(name + ", another message", alg, spki, message + b"x", sig, False)
        case(name + ", one bit of the first half", alg, spki, message, bytes([sig[0] ^ 1]) + sig[1:], False)
        case(name + ", one bit of the second half", alg, spki, message, sig[:-1] + bytes([sig[-1] ^ 1]), False)
        case(name + ", the other algorithm", "EdDSA" if alg == "ES256" else "ES256", spki, message, sig, False)
    for key, message in itertools.product((bench.one, bench.two, bench.three), (b"x", b"a\0b", bytes(1000))):
        case("openssl: %s over %d bytes" % (key.alg, len(message)), key.alg, key.spki, message, key.sign(message), True)
    for number in range(3000):  # until a number is short: its zeros must be kept
        message = b"%d" % number
        sig = bench.one.sign(message)
        if 0 in (sig[0], sig[32]):
            case("openssl: a number of 31 bytes", "ES256", bench.one.spki, message, sig, True)
            break
    return cases


def canonical_cases() -> List[Case]:
    """Bytes, and their canonical form, or which rule they break."""
    values: List[object] = [
        None,
        True,
        False,
        0,
        -1,
        9007199254740991,
        -9007199254740991,
        "",
        "a",
        [],
        {},
        [[]],
        [{}],
        {"": ""},
        {"b": 1, "a": {"d": [True, None], "c": "x"}},
        {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\u0080": 6, "\u00f6": 7},  # RFC 8785, 3.2.3
        {"\ue000": 1, "\U00010000": 2, "\uffff": 3, "a": 4, "A": 5, "aa": 6, "_": 7},
        "".join(chr(number) for number in range(0x20)) + '"\\/\x7f\u2028\u2029\u20ac\U0001f600',
    ]
    cases: List[Case] = []
    for number, value in enumerate(values):
        written = canonical(value)
        cases.append({"name": "value %d" % number, "bytes": b64(written), "canonical": b64(written)})
        spread = json.dumps(value, indent=1).encode()
        cases.append({"name": "value %d, spread out" % number, "bytes": b64(spread), "canonical": b64(written)})
    bad = [
        b"",
        b"{",
        b"[1,]",
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":1}',
        b"1.0",
        b"1e3",
        b"-",
        b"01",
        b"+1",
        b"NaN",
        b"Infinity",
        b"9007199254740992",
        b"-9007199254740992",
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b'"\xed\xa0\x80"',
        b'"\xc0\xaf"',
        b'"\n"',
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b"{}x",
        b"{}\0",
        b"[" * 17 + b"]" * 17,
        b"'a'",
        b'"\\x41"',
        b"tru",
        b"{1:2}",
        b"// x\n1",
    ]
    cases += [{"name": "refused: %r" % data[:20], "bytes": b64(data), "refused": True} for data in bad]
    return cases


GOOD_VERSIONS = [
    "0.0.4",
    "1.2.3",
    "10.20.30",
    "1.1.2-prerelease+meta",
    "1.1.2+meta",
    "1.1.2+meta-valid",
    "1.0.0-alpha",
    "1.0.0-beta",
    "1.0.0-alpha.beta",
    "1.0.0-alpha.beta.1",
    "1.0.0-alpha.1",
    "1.0.0-alpha0.valid",
    "1.0.0-alpha.0valid",
    "1.0.0-alpha-a.b-c-somethinglong+build.1-aef.1-its-okay",
    "1.0.0-rc.1+build.1",
    "2.0.0-rc.1+build.123",
    "1.2.3-beta",
    "10.2.3-DEV-SNAPSHOT",
    "1.2.3-SNAPSHOT-123",
    "1.0.0",
    "2.0.0",
    "1.1.7",
    "2.0.0+build.1848",
    "2.0.1-alpha.1227",
    "1.0.0-alpha+beta",
    "1.2.3----RC-SNAPSHOT.12.9.1--.12+788",
    "1.2.3----R-S.12.9.1--.12+meta",
    "1.2.3----RC-SNAPSHOT.12.9.1--.12",
    "1.0.0+0.build.1-rc.10000aaa-kk-0.1",
    "99999999999999999999999.999999999999999999.99999999999999999",
    "1.0.0-0A.is.legal",
]
BAD_VERSIONS = [
    "1",
    "1.2",
    "1.2.3-0123",
    "1.2.3-0123.0123",
    "1.1.2+.123",
    "+invalid",
    "-invalid",
    "-invalid+invalid",
    "-invalid.01",
    "alpha",
    "alpha.beta",
    "alpha.beta.1",
    "alpha.1",
    "alpha+beta",
    "alpha_beta",
    "alpha.",
    "alpha..",
    "beta",
    "1.0.0-alpha_beta",
    "-alpha.",
    "1.0.0-alpha..",
    "1.0.0-alpha..1",
    "1.0.0-alpha...1",
    "1.0.0-alpha....1",
    "1.0.0-alpha.....1",
    "01.1.1",
    "1.01.1",
    "1.1.01",
    "1.2.3.DEV",
    "1.2-SNAPSHOT",
    "1.2.31.2.3----RC-SNAPSHOT.12.09.1--..12+788",
    "1.2-RC-SNAPSHOT",
    "-1.0.3-gamma+b7718",
    "+justmeta",
    "9.8.7+meta+meta",
    "9.8.7-whatever+meta+meta",
    "99999999999999999999999.999999999999999999.99999999999999999----RC-SNAPSHOT.12.09.1--------------------------------..12",
    "v1.2.3",
]
RISING = [
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "2.0.0",
    "2.1.0",
    "2.1.1",
]


def semver_cases() -> List[Case]:
    """Versions that are some, that are none, and pairs with which one is older."""
    cases: List[Case] = [{"name": text, "version": text, "is": True} for text in GOOD_VERSIONS]
    cases += [
        {"name": text or "nothing", "version": text, "is": False}
        for text in [*BAD_VERSIONS, "", "1.2.3\n", " 1.2.3", "1.2.3 ", "\u0661.2.3"]
    ]
    for (low, one), (high, other) in itertools.product(enumerate(RISING), repeat=2):
        cases.append({"name": "%s < %s" % (one, other), "one": one, "other": other, "older": low < high})
    for one, other in (("1.0.0+a", "1.0.0+b"), ("1.0.0+b", "1.0.0"), ("1.0.0-a+x", "1.0.0-a+y")):
        cases.append({"name": "%s = %s" % (one, other), "one": one, "other": other, "older": False})
    return cases


def time_cases() -> List[Case]:
    """Times with their seconds, as `date` counts them, and what is no time."""
    good = [
        "1970-01-01T00:00:00Z",
        "2000-02-29T12:30:15Z",
        "2024-02-29T23:59:59Z",
        "2026-01-31T23:59:59Z",
        "2038-01-19T03:14:08Z",
        "1969-12-31T23:59:59Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "1900-03-01T00:00:00Z",
        "2100-02-28T23:59:59Z",
    ]
    bad = [
        "2026-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:60:00Z",
        "2016-12-31T23:59:60Z",
        "2026-01-01T00:00:00+00:00",
        "2026-01-01T00:00:00z",
        "2026-01-01t00:00:00Z",
        "2026-01-01T00:00:00",
        "2026-01-01",
        "2026-1-01T00:00:00Z",
        "2026-01-01T00:00:00.Z",
        "2026-01-01T00:00:00,5Z",
        "2026-01-01T00:00:00.0000000001Z",
        "0000-01-01T00:00:00Z",
        "20260101T000000Z",
        "2026-W01-1T00:00:00Z",
        "+2026-01-01T00:00:00Z",
    ]
    cases: List[Case] = []
    for text in good:
        seconds = int(run("date", "-u", "-d", text, "+%s"))
        cases.append({"name": text, "time": text, "seconds": seconds})
        cases.append({"name": text + " with a fraction", "time": text[:-1] + ".999999999Z", "seconds": seconds})
    return cases + [
        {"name": text, "time": text, "refused": True}
        for text in [*bad, "", "2026-01-01T00:00:00Z\n", "2026-01-01 00:00:00Z"]
    ]


def toml_cases() -> List[Case]:
    """Texts with their values by section, as `tomllib` reads them, and texts that our subset does not take."""
    good = [
        "",
        "# only a comment",
        "a = 1",
        "a=1\nb = -0\nc = +7\nd = 1_000\ne = -9223372036854775808\n",
        "a = true\nb = false",
        'a = "\\b\\t\\n\\f\\r\\"\\\\\\u00e9\\U0001F600"',
        "a = 'C:\\x'",
        "[s]\na = 'b' # c\n[t]\n",
        'a = "#"\r\n[s]\r\nb = 2\r\n',
        "-a_1 = 1\n1 = 2",
        "\ta\t=\t1\t",
        "[ s ]\n",
        'a = "\u00e9\U0001f600"',
    ]
    bad = [
        "a = [1]",
        "a = {}",
        "a = 1.0",
        "a = 1e3",
        "a = 2026-01-01",
        'a = """x"""',
        "a = '''x'''",
        "a.b = 1",
        '"a" = 1',
        "[a.b]",
        "[[a]]",
        '["a"]',
        "a = 0x1",
        "a = 01",
        "a = 1__0",
        "a = _1",
        "a = 1_",
        "a = inf",
        "a = nan",
        "a = True",
        "a = b",
        "a =",
        "= 1",
        "a",
        "a = 1 b = 2",
        "a = 1\na = 2",
        "[s]\n[s]",
        "s = 1\n[s]",
        'a = "\\x41"',
        'a = "\\ud800"',
        'a = "x',
        "a = 'x",
        'a = "\x01"',
        "a = 1 # \x01",
        "\ufeffa = 1",
        "a = 9223372036854775808",
        "[s",
        "[]",
        "[s] x",
    ]
    cases: List[Case] = []
    for text in good:
        read = tomllib.loads(text)
        values: Dict[str, object] = {"": {key: value for key, value in read.items() if not isinstance(value, dict)}}
        values.update({key: value for key, value in read.items() if isinstance(value, dict)})
        cases.append({"name": text[:40] or "nothing", "text": text, "values": values})
    return cases + [{"name": text[:40], "text": text, "refused": True} for text in bad]


def pin_cases(bench: Bench) -> List[Case]:
    """Lists of pins with what they hold, what is none, and keys with the pin that openssl computes."""
    one, two = bench.one.pin, bench.two.pin
    high = one[:-2] + chr(ord(one[-2]) + 1) + "="
    cases: List[Case] = [
        {"name": "none", "pins": "", "holds": []},
        {"name": "one", "pins": one, "holds": [one]},
        {"name": "two with blanks", "pins": " %s , %s " % (one, two), "holds": [one, two]},
        {"name": "one twice", "pins": "%s,%s,%s" % (one, two, one), "holds": [one, two]},
    ]
    bad = [
        one + ",",
        "sha256/",
        one[7:],
        one.replace("sha256", "SHA256"),
        one.replace("sha256", "sha1"),
        one.rstrip("="),
        one + "=",
        high,
        "sha256/QQ==",
        one.replace("sha256/", "sha256/ "),
        "sha512/" + b64(bytes(64)),
        bench.one.digest.hex(),
    ]
    cases += [{"name": "refused: " + text[:40], "pins": text, "refused": True} for text in bad]
    return cases + [
        {"name": "of a key", "spki": b64(key.spki), "pin": key.pin} for key in (bench.one, bench.two, bench.stranger)
    ]


def manifest_cases(bench: Bench) -> List[Case]:
    """Bodies, and some of what they say, or that their shape is refused."""
    good: List[Tuple[str, Dict[str, object], Dict[str, object]]] = [
        (
            "plain",
            {},
            {
                "product": "toy",
                "version": "1.1.0",
                "sequence": 5,
                "issued_at": 1767225600,
                "expires_at": 1798761600,
                "channel": "stable",
            },
        ),
        (
            "every field",
            {"channel": "beta/x", "minFrom": "1.0.0-rc.1+b"},
            {"channel": "beta/x", "min_from": "1.0.0-rc.1+b"},
        ),
        ("spec 2 without an epoch", {"spec": 2}, {"epoch": 0}),
        ("spec 2 with an epoch", {"spec": 2, "epoch": 2**53 - 1}, {"epoch": 2**53 - 1}),
        ("spec 2 with an epoch that is absent all the same", {"spec": 2, "epoch": 0}, {"epoch": 0}),
        ("the ends of the numbers", {"sequence": 999999999999999}, {"sequence": 999999999999999}),
        ("a fraction of a second", {"issuedAt": "2026-01-01T00:00:00.9Z"}, {"issued_at": 1767225600}),
    ]
    artifact = {"name": "x", "platform": "linux-amd64", "sha256": "ab" * 32, "size": 1}
    bad: List[Tuple[str, Dict[str, Any]]] = [
        *(("without " + name, {name: None}) for name in body_fields(bench)),
        *(
            ("%s is %r" % (name, value), {name: value})
            for name, value in (
                ("type", "slotward.key-set"),
                ("spec", 3),
                ("epoch", 1),
                ("spec", True),
                ("product", "Toy"),
                ("product", "t" * 65),
                ("product", "toy\n"),
                ("version", "1.1"),
                ("version", "v1.1.0"),
                ("sequence", 0),
                ("sequence", -1),
                ("sequence", "5"),
                ("sequence", 10**15),
                ("issuedAt", 5),
                ("issuedAt", "2026-01-01"),
                ("expiresAt", "2026-01-01T00:00:00Z"),
                ("channel", ""),
                ("minFrom", "1"),
                ("keys", []),
                ("keys", {}),
                ("artifacts", []),
                ("Version", "1.1.0"),
                ("urgent", True),
                ("artifacts", [artifact, artifact]),
                ("artifacts", [{**artifact, "name": "../x"}]),
                ("artifacts", [{**artifact, "size": 0}]),
                ("artifacts", [{**artifact, "sha256": "AB" * 32}]),
                ("artifacts", [{**artifact, "kind": "zip"}]),
                ("artifacts", [{**artifact, "x": 1}]),
            )
        ),
        *(("spec 2, epoch is %r" % (value,), {"spec": 2, "epoch": value}) for value in (-1, 2**53, "1", True, 1.5)),
    ]
    cases: List[Case] = [
        {"name": name, "body": canonical(body_fields(bench, **changes)).decode(), "says": says}
        for name, changes, says in good
    ]
    for name, changes in bad:
        cases.append({"name": name[:60], "body": canonical(body_fields(bench, **changes)).decode(), "refused": True})
    return cases


def main(argv: Sequence[str]) -> int:
    """Make every file."""
    target = pathlib.Path(argv[0]) if argv else HERE
    version = run("openssl", "version").decode().split()[1]
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(pathlib.Path(name))
        made: List[Tuple[str, Callable[..., List[Case]], List[Case]]] = [
            ("signatures", signature_cases, signature_cases(bench)),
            ("keys", key_cases, key_cases(bench)),
            ("canonical", canonical_cases, canonical_cases()),
            ("semver", semver_cases, semver_cases()),
            ("rfc3339", time_cases, time_cases()),
            ("toml", toml_cases, toml_cases()),
            ("pins", pin_cases, pin_cases(bench)),
            ("manifest", manifest_cases, manifest_cases(bench)),
        ]
    for file, maker, cases in made:
        about = {"about": maker.__doc__, "made_by": "tests/vectors/make.py with OpenSSL %s" % version}
        lines = ",\n".join(json.dumps(case, sort_keys=True) for case in cases)
        text = json.dumps(about, sort_keys=True)[:-1] + ', "cases": [\n' + lines + "\n]}\n"
        (target / (file + ".json")).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
