# SPDX-License-Identifier: GPL-3.0-or-later
"""Attacks on spelling: one document that two readers could take for two.

Every body here *is signed by pinned keys* (a signer was talked into it, or signs what he does not read), so that nothing but the
form can refuse it; the rows on the published form spell it so that somebody else might read other signatures or another body.
"""

from __future__ import annotations

import base64

import pytest
from core import making
from forger import forging
from forger.forging import ANA, BEA, GENUINE, Attack, Sends, by, fields, raw, sends, signed, spelled

from slotcore import codes

BAD, FORM = codes.BAD_MANIFEST, codes.NOT_CANONICAL
BODY64 = making.b64(GENUINE)
SIG64 = str(by(ANA)["sig"])
NOT64 = "not base64 (standard alphabet, padded, on one line)"
SECOND64 = "not the one base64 spelling of its bytes"
ESCAPE, PLAIN = "an escape that JSON does not have", "not a plain integer"
LARGE = "an integer beyond 2**53 - 1"
VERSION = '"version":"1.1.0"'


def high_bit(text: str) -> str:
    """The same base64 with unused bits of its last group set, where it has some."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    bare = text.rstrip("=")
    if len(bare) == len(text):
        raise AssertionError("no unused bits in it")
    return bare[:-1] + alphabet[alphabet.index(bare[-1]) + 1] + "=" * (len(text) - len(bare))


def odd_body() -> str:
    """A genuine body whose base64 has unused bits."""
    return making.b64(making.body(channel="stable" if len(making.body(channel="stable")) % 3 else "beta"))


def urlsafe(text: str) -> str:
    """In the alphabet of base64url, which differs: the text is looked for until it does."""
    made = text.replace("+", "-").replace("/", "_")
    return made if made != text else "-" + text[1:]


def published(text: str) -> Sends:
    """The published form in a spelling of the forger's: `%s` twice for the two signatures, `%b` for the body."""
    one, two = ('{"kid":"%s","sig":"%s"}' % (entry["kid"], entry["sig"]) for entry in (by(ANA), by(BEA)))
    return lambda: text.replace("%b", BODY64).replace("%1", one).replace("%2", two).encode()


def in_code(name: str) -> Sends:
    """The genuine body in another encoding."""
    return signed(GENUINE.decode().encode(name))


NUMBERS = (
    Attack("1e3", BAD, PLAIN, spelled('"sequence":5', '"sequence":1e3')),
    Attack("5E0", BAD, PLAIN, spelled('"sequence":5', '"sequence":5E0')),
    Attack("5.0", BAD, PLAIN, spelled('"sequence":5', '"sequence":5.0')),
    Attack("-0", BAD, "sequence must be a positive integer, not 0", spelled('"sequence":5', '"sequence":-0')),
    Attack("-5", BAD, "sequence must be a positive integer, not -5", spelled('"sequence":5', '"sequence":-5')),
    Attack("05", BAD, PLAIN, spelled('"sequence":5', '"sequence":05')),
    Attack("+5", BAD, "expected a value, found '+'", spelled('"sequence":5', '"sequence":+5')),
    Attack("0x5", BAD, "found 'x'", spelled('"sequence":5', '"sequence":0x5')),
    Attack("5 in fullwidth digits", BAD, "expected a value", spelled('"sequence":5', '"sequence":\uff15')),
    Attack("2**53, where doubles lose one", BAD, LARGE, spelled('"sequence":5', '"sequence":9007199254740992')),
    Attack("2**64 + 5", BAD, LARGE, spelled('"sequence":5', '"sequence":18446744073709551621')),
    Attack("a number of 5,000 digits", BAD, LARGE, spelled('"sequence":5', '"sequence":' + "9" * 5000)),
    Attack("NaN", BAD, "found 'N'", spelled('"sequence":5', '"sequence":NaN')),
    Attack("Infinity", BAD, "found 'I'", spelled('"sequence":5', '"sequence":Infinity')),
    Attack("-Infinity", BAD, "found '-'", spelled('"sequence":5', '"sequence":-Infinity')),
    Attack("a sequence that no trial record holds", BAD, "at most 999999999999999", fields(sequence=10**15)),
    Attack("a string for a number", BAD, "not '5'", spelled('"sequence":5', '"sequence":"5"')),
    Attack("true for 1", BAD, "spec must be a positive integer, not True", spelled('"spec":1', '"spec":true')),
    Attack("a list of one number", BAD, "not [5]", spelled('"sequence":5', '"sequence":[5]')),
    Attack("null", BAD, "not None", spelled('"sequence":5', '"sequence":null')),
)

KEYS_OF_OBJECTS = (
    Attack("a key twice", BAD, "the key 'version' is there twice", spelled(VERSION, '"version":"9.9.9",' + VERSION)),
    Attack(
        "a key twice, the same value",
        BAD,
        "the key 'version' is there twice",
        spelled(VERSION, VERSION + "," + VERSION),
    ),
    Attack(
        "a key twice, once in escapes",
        BAD,
        "the key 'version' is there twice",
        spelled(VERSION, VERSION + ',"ver\\u0073ion":"9.9.9"'),
    ),
    Attack(
        "a key twice, deep inside", BAD, "the key 'size' is there twice", spelled('"size":12', '"size":12,"size":13')
    ),
    Attack(
        "`Version` beside `version`",
        BAD,
        "the unknown field 'Version'",
        spelled(VERSION, '"Version":"9.9.9",' + VERSION),
    ),
    Attack("`Version` instead of `version`", BAD, "has no version", spelled(VERSION, '"Version":"1.1.0"')),
    Attack(
        "`version` with a blank", BAD, "the unknown field 'version '", spelled(VERSION, VERSION + ',"version ":"9.9.9"')
    ),
    Attack(
        "`version` with a NUL",
        BAD,
        "the unknown field 'version\\x00'",
        spelled(VERSION, VERSION + ',"version\\u0000":"9"'),
    ),
    Attack(
        "`version` with a letter that looks alike",
        BAD,
        "the unknown field 'v\\u0435rsion'",
        spelled(VERSION, VERSION + ',"v\u0435rsion":"9"'),
    ),
    Attack(
        "`version` with a long s, as some fold cases",
        BAD,
        "the unknown field",
        spelled(VERSION, VERSION + ',"ver\u017fion":"9"'),
    ),
    Attack(
        "`__proto__`", BAD, "the unknown field '__proto__'", spelled(VERSION, VERSION + ',"__proto__":{"version":"9"}')
    ),
    Attack("an empty key", BAD, "the unknown field ''", spelled(VERSION, '"":0,' + VERSION)),
    Attack(
        "keys in another order",
        FORM,
        "byte 2",
        signed(b'{"version":"1.1.0",' + GENUINE[1:].replace(b',"version":"1.1.0"', b"")),
    ),
    Attack("a field of a later spec", BAD, "the unknown field 'urgent'", fields(urgent=True)),
    Attack("another spec", BAD, "spec must be 1 or 2", fields(spec=3)),
    Attack("another type", BAD, "type must be 'slotward.release'", fields(type="slotward.withdrawal")),
)

STRINGS = (
    Attack("a letter in escapes", FORM, "found '\\\\'", spelled('"product":"toy"', '"product":"\\u0074oy"')),
    Attack("a solidus in escapes", FORM, "found '\\\\'", signed(making.body(channel="a/b").replace(b"a/b", b"a\\/b"))),
    Attack("an escape that JSON does not have", BAD, ESCAPE, spelled('"toy"', '"\\x74oy"')),
    Attack("an escape cut short", BAD, ESCAPE, spelled('"toy"', '"to\\u7"')),
    Attack("half of a surrogate pair in escapes", BAD, "half of a surrogate pair", spelled('"toy"', '"to\\ud83d"')),
    Attack("the other half", BAD, "half of a surrogate pair", spelled('"toy"', '"to\\ude00"')),
    Attack("two first halves", BAD, "half of a surrogate pair", spelled('"toy"', '"to\\ud83d\\ud83d"')),
    Attack("half of a surrogate pair in bytes", BAD, "not UTF-8", spelled('"toy"', '"to\ud83d"')),
    Attack(
        "a pair in bytes (CESU-8)", BAD, "not UTF-8", signed(GENUINE.replace(b'"toy"', b'"\xed\xa0\xbd\xed\xb8\x80"'))
    ),
    Attack("overlong UTF-8", BAD, "not UTF-8", signed(GENUINE.replace(b'"toy"', b'"\xc1\xb4oy"'))),
    Attack("a byte of Latin-1", BAD, "not UTF-8", signed(GENUINE.replace(b'"toy"', b'"t\xf6y"'))),
    Attack("a line end in a string", BAD, "expected the rest of a string", spelled('"toy"', '"to\n"')),
    Attack("a NUL in a string", BAD, "expected the rest of a string", spelled('"toy"', '"toy\0"')),
    Attack("single quotes", BAD, "expected a value", spelled('"toy"', "'toy'")),
    Attack("a product with a line end", BAD, "not 'toy\\n'", fields(product="toy\n")),
    Attack("a product that is a path", BAD, "not '../toy'", fields(product="../toy")),
    Attack("a version with a line end", BAD, "not '1.1.0\\n'", fields(version="1.1.0\n")),
    Attack("a version with a leading zero", BAD, "not '01.1.0'", fields(version="01.1.0")),
    Attack("a version with a v", BAD, "not 'v1.1.0'", fields(version="v1.1.0")),
    Attack("a version in other digits", BAD, "not '1.1.\\u0660'", fields(version="1.1.\u0660")),
    Attack("a time with an offset", BAD, "is not a time", fields(issuedAt="2026-01-01T00:00:00+00:00")),
    Attack("a time in small letters", BAD, "is not a time", fields(issuedAt="2026-01-01t00:00:00z")),
    Attack("a leap second", BAD, "does not exist", fields(expiresAt="2026-12-31T23:59:60Z")),
    Attack("a day that is none", BAD, "does not exist", fields(expiresAt="2026-02-30T00:00:00Z")),
    Attack("expired before it was issued", BAD, "is not after issuedAt", fields(expiresAt="2025-01-01T00:00:00Z")),
    Attack("a digest in capitals", BAD, "64 lower-case", fields(artifacts=[making.artifact_fields(sha256="AB" * 32)])),
    Attack(
        "an artifact that is a path",
        BAD,
        "a plain file name",
        fields(artifacts=[making.artifact_fields(name="../../bin/sh")]),
    ),
    Attack(
        "an artifact that is hidden", BAD, "a plain file name", fields(artifacts=[making.artifact_fields(name=".x")])
    ),
    Attack(
        "two artifacts of one name",
        BAD,
        "is the same as",
        fields(artifacts=[making.artifact_fields(), making.artifact_fields(size=9)]),
    ),
    Attack("no artifact", BAD, "at least one", fields(artifacts=[])),
)

BYTES = (
    Attack("a byte order mark", BAD, "a byte order mark", signed(b"\xef\xbb\xbf" + GENUINE)),
    Attack("UTF-16 with its mark", BAD, "not UTF-8", in_code("utf-16")),
    Attack("UTF-16, little-endian", BAD, "expected", in_code("utf-16-le")),
    Attack("UTF-16, big-endian", BAD, "expected", in_code("utf-16-be")),
    Attack("UTF-32", BAD, "not UTF-8", in_code("utf-32")),
    Attack("UTF-32, big-endian", BAD, "expected", in_code("utf-32-be")),
    Attack("UTF-7", BAD, "expected a value, found '+'", signed(GENUINE.replace(b"{", b"+AHs-"))),
    Attack("a blank in front", FORM, "byte 0: found ' '", signed(b" " + GENUINE)),
    Attack("a line end behind", FORM, "the canonical form has the end", signed(GENUINE + b"\n")),
    Attack("a NUL behind", BAD, "expected the end, found '\\x00'", signed(GENUINE + b"\0")),
    Attack("a second body behind", BAD, "expected the end, found '{'", signed(GENUINE + making.body(version="9.9.9"))),
    Attack("one byte missing", BAD, "expected ',' or '}', found the end", signed(GENUINE[:-1])),
    Attack("blanks between", FORM, "found ' '", spelled(VERSION, VERSION.replace(":", ": "))),
    Attack("a comment", BAD, "expected", spelled(VERSION, VERSION + "/* */")),
    Attack("a comma too many", BAD, "expected a string, found '}'", spelled(VERSION, VERSION + ",")),
    Attack("nested 17 deep", BAD, "nested deeper than 16", spelled(VERSION, VERSION + ',"x":' + "[" * 16 + "]" * 16)),
    Attack("nested 100,000 deep", BAD, "nested deeper than 16", signed(b"[" * 100_000)),
    Attack("more values than anybody needs", BAD, "more than 65536 values", signed(b"[" + b"0," * 65_536 + b"0]")),
    Attack("a body over one mebibyte", BAD, "at most 1048576 are taken", signed(b" " * (1 << 20) + GENUINE)),
    Attack("a list", BAD, "must be an object, not []", signed(b"[]")),
    Attack("nothing", BAD, "found the end", signed(b"")),
)

BASE64 = (
    Attack("unused bits in a signature", BAD, SECOND64, raw(BODY64, high_bit(SIG64))),
    Attack("unused bits in the body", BAD, SECOND64, raw(high_bit(odd_body()))),
    Attack(
        "unused bits in a key",
        BAD,
        SECOND64,
        fields(keys=[{**making.key_fields(ANA.public), "spki": high_bit(making.b64(ANA.public.spki))}]),
    ),
    Attack("no padding", BAD, NOT64, raw(BODY64, SIG64.rstrip("="))),
    Attack("too much padding", BAD, "base64", raw(BODY64, SIG64 + "=")),
    Attack("padding inside", BAD, "base64", raw("QQ==" + BODY64)),
    Attack("a line end behind the base64", BAD, NOT64, raw(BODY64 + "\n")),
    Attack("lines of 64", BAD, NOT64, raw(base64.encodebytes(GENUINE).decode())),
    Attack("a blank inside", BAD, NOT64, raw(BODY64[:40] + " " + BODY64[40:])),
    Attack("a tab in front", BAD, NOT64, raw("\t" + BODY64)),
    Attack("a NUL inside", BAD, NOT64, raw(BODY64[:40] + "\0" + BODY64[40:])),
    Attack("the alphabet of URLs", BAD, NOT64, raw(BODY64, urlsafe(SIG64))),
    Attack("a letter that looks alike", BAD, NOT64, raw(BODY64, "\u0410" + SIG64[1:])),
    Attack("hexadecimal", BAD, "base64", raw(BODY64, forging.sig_of(ANA).hex() + "=")),
    Attack(
        "the body as an object",
        BAD,
        "manifest must be a string, not {",
        lambda: b'{"manifest":' + GENUINE + b',"signatures":[]}',
    ),
)

PUBLISHED = (
    Attack(
        "two bodies",
        BAD,
        "the key 'manifest' is there twice",
        published('{"manifest":"%b","manifest":"QQ==","signatures":[%1,%2]}'),
    ),
    Attack(
        "two bodies, one in escapes",
        BAD,
        "the key 'manifest' is there twice",
        published('{"manifest":"%b","manif\\u0065st":"QQ==","signatures":[%1,%2]}'),
    ),
    Attack(
        "two lists of signatures",
        BAD,
        "is there twice",
        published('{"manifest":"%b","signatures":[],"signatures":[%1,%2]}'),
    ),
    Attack(
        "a threshold of the forger's",
        BAD,
        "the unknown field 'threshold'",
        published('{"manifest":"%b","signatures":[%1],"threshold":1}'),
    ),
    Attack(
        "pins of the forger's",
        BAD,
        "the unknown field 'pins'",
        published('{"manifest":"%b","pins":[],"signatures":[%1,%2]}'),
    ),
    Attack("`Signatures`", BAD, "has no signatures", published('{"manifest":"%b","Signatures":[%1,%2]}')),
    Attack(
        "an object of signatures",
        BAD,
        "signatures must be a list",
        published('{"manifest":"%b","signatures":{"0":%1,"1":%2}}'),
    ),
    Attack(
        "a field more in a signature",
        BAD,
        "the unknown field 'alg'",
        published('{"manifest":"%b","signatures":[{"alg":"none","kid":"a","sig":""}]}'),
    ),
    Attack(
        "a key id with a line end",
        BAD,
        "signatures[0].kid must be",
        published('{"manifest":"%b","signatures":[{"kid":"a\\n","sig":""}]}'),
    ),
    Attack(
        "bytes behind the published form",
        BAD,
        "expected the end",
        published('{"manifest":"%b","signatures":[%1,%2]}{}'),
    ),
    Attack(
        "a byte order mark before the published form",
        BAD,
        "a byte order mark",
        published('\ufeff{"manifest":"%b","signatures":[%1,%2]}'),
    ),
    Attack(
        "the published form over two mebibytes",
        BAD,
        "at most 2097152 are taken",
        published(" " * (2 << 20) + '{"manifest":"%b","signatures":[%1,%2]}'),
    ),
    Attack(
        "70,000 signatures",
        BAD,
        "more than 65536 values",
        published('{"manifest":"%b","signatures":[' + '{"kid":"k","sig":""},' * 70_000 + "%1]}"),
    ),
    Attack("an HTML page", BAD, "expected a value, found '<'", lambda: b"<!DOCTYPE html><html><body>502</body></html>"),
    Attack("the bare body", BAD, "has no manifest, no signatures", lambda: GENUINE),
)
ATTACKS = NUMBERS + KEYS_OF_OBJECTS + STRINGS + BYTES + BASE64 + PUBLISHED


@pytest.mark.parametrize("attack", ATTACKS, ids=forging.names(ATTACKS))
def test_it_is_refused_by_name(attack: Attack) -> None:
    """The code names the attack, and the words say where."""
    refusal = forging.judged(attack)
    assert refusal is not None
    assert (refusal.code, attack.says in refusal.text) == (attack.code, True), refusal


@pytest.mark.parametrize(
    "text", ['{"manifest":"%b","signatures":[%1,%2]}', ' {\n"signatures" : [ %2 , %1 ],\t"manifest":"%b"}\r\n']
)
def test_the_published_form_itself_may_be_spelled_freely(text: str) -> None:
    """Nobody signs it, and it reads in one way only."""
    assert forging.judged(Attack("", "", "", published(text))) is None


def test_a_body_that_only_looks_odd_is_taken() -> None:
    """Every optional field, the ends of the numbers, the longest names: a host must not fail where a forger does."""
    artifacts = [
        making.artifact_fields(),
        making.artifact_fields(name="a" * 255, platform="linux-arm64", kind="tar.gz", variant="x_1"),
    ]
    body = making.body(
        sequence=10**15 - 1,
        artifacts=artifacts,
        channel="stable",
        minFrom="1.0.0-alpha.1+x.y",
        issuedAt="2026-01-01T00:00:00.999Z",
    )
    assert forging.judged(Attack("", "", "", sends(by(ANA, body), by(BEA, body), body=body))) is None
