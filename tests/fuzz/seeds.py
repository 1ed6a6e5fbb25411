# SPDX-License-Identifier: GPL-3.0-or-later
"""Where fuzzing starts: a few good inputs of each target, words of each format, and every find that there ever was.

A find is a file ``finds/<target>-<what it was>``; it stays, and every test run plays it again.
"""

from __future__ import annotations

import base64
import json
import pathlib
import struct
from typing import Dict, List, Tuple

from support import tars

from slotcore import audit, catalogue, protocol, recording, records, reply, trust_record

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# RFC 6979, A.2.5 (P-256) and RFC 8032, 7.1 TEST 1 (Ed25519), each as SPKI
SPKIS: Tuple[Tuple[str, str], ...] = (
    (
        "ES256",
        (
            "3059301306072a8648ce3d020106082a8648ce3d03010703420004"
            "60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6"
            "7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299"
        ),
    ),
    ("EdDSA", "302a300506032b6570032100d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"),
)
BODY: Dict[str, object] = {
    "artifacts": [
        {"name": "toy_1.1.0_linux_amd64", "platform": "linux-amd64", "sha256": "ab" * 32, "size": 12},
        {"kind": "tar.gz", "name": "t", "platform": "linux-arm64", "sha256": "cd" * 32, "size": 1, "variant": "full"},
    ],
    "channel": "beta/x_1",
    "expiresAt": "2027-01-01T00:00:00Z",
    "issuedAt": "2026-01-01T00:00:00.5Z",
    "keys": [
        {"alg": alg, "kid": "k%d" % number, "spki": base64.b64encode(bytes.fromhex(spki)).decode()}
        for number, (alg, spki) in enumerate(SPKIS)
    ],
    "minFrom": "1.0.0-rc.1+x",
    "product": "toy",
    "sequence": 5,
    "spec": 1,
    "type": "slotward.release",
    "version": "1.1.0",
}
TRIAL = b"""SPEC=1
ID=9f8a6c1e22d04b57
PRODUCT=demo
FROM_VERSION=1.0.0
TO_VERSION=1.1.0
FROM_SLOT=a
TO_SLOT=b
SEQUENCE=2
BOOT_ID=4b3f6a52-6f0e-4c39-9a3e-2f6f0a1f2f10
LENGTH_S=120
DEADLINE_S=1060
BOOTS_LEFT=3
STARTS=0
COMMAND=-
FROM_SHA256=%s
TO_SHA256=%s
""" % (b"a" * 64, b"b" * 64)
TOML = b"""# ours
data_dir = '/var/lib/slotward'
log_level = "in\\u0066o" # why
[update]
release_pins = "sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
release_threshold = 1
release_sequence = 1_000
smoke_test = false
trial_length_s = +60

[other-1]
"""
COMMON: Dict[str, object] = {"issuedAt": BODY["issuedAt"], "keys": BODY["keys"], "product": "toy", "spec": 1}
DOCUMENTS: Tuple[Dict[str, object], ...] = (
    {
        **COMMON,
        "expiresAt": BODY["expiresAt"],
        "pins": ["sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="],
        "sequence": 2,
        "threshold": 1,
        "type": "slotward.key-set",
    },
    {
        **COMMON,
        "expiresAt": BODY["expiresAt"],
        "hosts": ["0123456789abcdef" * 2, "fedcba9876543210" * 2],
        "id": "00112233445566aa",
        "sequence": 4,
        "type": "slotward.downgrade-permit",
        "version": "1.0.0",
    },
    {**COMMON, "sequence": 4, "type": "slotward.withdrawal", "version": "1.0.0", "why": "it leaks \u00e9"},
)
ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 64, 64, 0, 0, 64, 56, 1, 0, 0, 0)
ELF += struct.pack("<IIQQQQQQ", 3, 4, 120, 0, 0, 8, 8, 1) + b"/lib/ld\0"


def canonical(value: object) -> bytes:
    """JSON in its canonical spelling, as far as these seeds need it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def published() -> bytes:
    """A published manifest with signatures that do not verify."""
    signatures = [{"kid": "k0", "sig": base64.b64encode(bytes(64)).decode()}, {"kid": "k1", "sig": ""}]
    return canonical({"manifest": base64.b64encode(canonical(BODY)).decode(), "signatures": signatures})


def target() -> bytes:
    """A target for that release."""
    fields = {"product": "toy", "version": "1.1.0", "url": "https://r.example.com/toy?x=1", "sha256": "AB" * 32}
    return canonical({**fields, "signature": published().decode()})


def kept() -> List[bytes]:
    """The three records, by our own writers: what is fuzzed is who reads them."""
    slot = records.SlotRecord("1.0.0", 1, "ab" * 32, 3, 1798761600, "stable")
    failed = records.Failed("1.1.0", "crash-loop", "it \u00e9", 2, "ab" * 32, 1)
    last = records.Last("00", "confirmed", "ok", "", "1.0.0", "1.1.0", 1)
    pin = "sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
    trust = trust_record.Trust(
        7,
        trust_record.Keys(2, 1, 9, (pin,), 1, "ab" * 32),
        (trust_record.Withdrawn("1.0.0", 4, "it leaks", 5),),
        (trust_record.Permitted("00112233445566aa", 6),),
        trust_record.Allowed("00112233445566aa", "1.0.0", 4),
    )
    return [
        records.render_slots({"a": slot, "b": slot}),
        records.render_update(records.Update(4, 9, (failed,), last, 7)),
        trust_record.render(trust),
    ]


def listed() -> bytes:
    """A catalogue of two releases."""
    one = catalogue.Entry("1.1.0", 5, "stable", 1, 9, "ab" * 32, False, "1.0.0")
    return catalogue.encode("toy", (one, one._replace(version="1.0.0", sequence=4, withdrawn=True, min_from=None)))


def log() -> bytes:
    """Two lines of an audit log, by our own writer: what is fuzzed is who reads them."""
    event = audit.Event("swapped", "toy", 7, "ok", "1.0.0", "1.1.0", "9f8a6c1e22d04b57", 2, "ab" * 32, "root", "why")
    first = audit.append(None, event)
    return first + b"\n" + audit.append(first, event)


def said() -> List[bytes]:
    """A greeting, one request of a connection and one of a file, an answer, by our own writers."""
    ask = protocol.Request("update.swap", "0123456789abcdef", "ab" * 16, "x.target", "x.permit", 9)
    base = {"spec": 1, "product": "toy", "changed": False, "state": "idle", "code": "ok", "message": ""}
    return [
        protocol.render_hello(protocol.Hello("toy", (1, 2), "ab" * 16, "1.0.0", "cd" * 32)),
        protocol.render_request(ask),
        protocol.render_request(protocol.Request("update.rollback", ask.id, trial=ask.id, why="it \u00e9")),
        protocol.render_request(protocol.Request("node.confirm", ask.id, "ab" * 16, trial=ask.id, wait=30)),
        reply.render(reply.of_command(ask.id, 0, base)),
        reply.render(reply.refusal("", "too-many", "later")),
    ]


def plain() -> Dict[str, List[bytes]]:
    """A few good inputs of each target."""
    keys = [bytes.fromhex(spki) + bytes(range(64)) + b"message" for _alg, spki in SPKIS]
    values = [
        b'{"a":[1,-2,true,null],"\xc3\xa9":"\\u0041\\n","\xf0\x9f\x98\x80":{}}',
        canonical(BODY),
        b' [ "\\ud83d\\ude00" ] ',
    ]
    return {
        "archive": [
            tars.directory(b"./bin/") + tars.member(b"bin/toy", b"#!/bin/sh\n", mode=b"0000755\0") + tars.END,
            tars.extended((b"path", b"pax/name")) + tars.member(b"y", b"1") + tars.END,
            tars.long_name(b"d/" + b"l" * 120 + b"\0") + tars.member(b"short", magic=tars.GNU) + tars.END,
            tars.packed(tars.member(b"toy", b"x")),
        ],
        "audit": [log(), recording.sealed(b"x")],
        "base64": [b"QQ==", b"QUI=", b"+/+/", b""],
        "body": [canonical(BODY), json.dumps(BODY, indent=1).encode()],
        "canonical": values,
        "catalogue": [listed(), ELF, b"-----BEGIN PUBLIC KEY-----\nQUJD\n-----END PUBLIC KEY-----\n"],
        "config": [TOML],
        "documents": [canonical(BODY), *(canonical(one) for one in DOCUMENTS)],
        "download": [
            b"https://h.example.com:8443/a/b?x=1#y\0//other.example.com/c",
            b"http://[::1]/\0../x",
            b"bytes 5-8/9\0",
            b"120\0",
            b"Wed, 21 Oct 2026 07:28:30 GMT\0Wed, 21 Oct 2026 07:28:00 GMT",
            b'"etag"\0',
            b"certificate verify failed: self-signed certificate (_ssl.c:1)",
        ],
        "elf": [ELF, b"#!/usr/bin/env -S python3 -I\n", b"<!DOCTYPE html>"],
        "json": values,
        "keys": keys,
        "protocol": said(),
        "published": [published()],
        "records": kept(),
        "rfc3339": [b"2026-01-31T23:59:59Z", b"2024-02-29T00:00:00.123456789Z", b"0001-01-01T00:00:00Z"],
        "semver": [
            b"1.0.0\0" + b"1.0.0-alpha.1\0" + b"1.0.0-alpha.beta+x",
            b"1.2.3----RC-SNAPSHOT.12.9.1--.12+788\0" + b"0.0.4",
        ],
        "target": [target()],
        "toml": [TOML, b'a = "\\b\\t\\U0001F600"\r\nb = -0\r\n'],
        "trust": [published(), *(canonical(one) for one in DOCUMENTS)],
        "trial": [TRIAL, TRIAL + b"REASON=crash-loop\n", b"log 1#\nstart 900\ncrash 901\n"],
    }


WORDS = (
    *(r"\u0000", r"\ud800", r"\udc00", r"\U0010FFFF", "null", "true", "false", "9007199254740991", "-0", "1e3", "1.0"),
    *("\ufeff", "\u2028", "\u0661", "\U0001f600", "NaN", "Infinity", "==", "/", "+", "-_", "'''", "[[", "]]", " = "),
    *("https://", "http://", "@", "//", "Content-Range", "bytes ", "GMT", "REASON=", "SPEC=1", "start ", "crash "),
    *BODY,
    *("name", "platform", "sha256", "size", "kind", "variant", "alg", "kid", "spki", "ES256", "EdDSA", "stable"),
    *(
        "protocol",
        "nonce",
        "id",
        "op",
        "target",
        "permit",
        "serverTime",
        "trial",
        "wait",
        "retry",
        "refused",
        "message",
        "answer",
    ),
    *protocol.OPERATIONS,
    *("spec", "slots", "floor", "failed", "last", "newest_issued", "why", "at", "code", "manifest", "signatures"),
)


def finds() -> Dict[str, List[bytes]]:
    """What once broke a promise, by target."""
    found: Dict[str, List[bytes]] = {}
    for path in sorted((HERE / "finds").glob("*-*")):
        found.setdefault(path.name.partition("-")[0], []).append(path.read_bytes())
    return found


def dictionary() -> str:
    """The words in libFuzzer's own format."""
    quoted = ("".join("\\x%02x" % byte for byte in word.encode()) for word in WORDS)
    return "".join('"%s"\n' % word for word in quoted)
