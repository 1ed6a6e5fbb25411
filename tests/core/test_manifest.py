# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifest's shape: exactly its fields, each by its rule, and errors that name the field."""

from __future__ import annotations

import json
from typing import Dict, List

import pytest
from core import making
from hypothesis import given
from hypothesis import strategies as st

from slotcore import canonical, config, keys, manifest, trial


def bad(**changes: object) -> str:
    """The error of a body with these changes."""
    with pytest.raises(manifest.BadManifest) as error:
        manifest.parse_body(making.body(**changes))
    return str(error.value)


def test_a_whole_manifest_is_read() -> None:
    """Every field, the optional ones too."""
    artifact = making.artifact_fields(kind="tar.gz", variant="full")
    fields = making.body_fields(channel="beta", minFrom="1.0.0", artifacts=[making.artifact_fields(name="x"), artifact])
    found, value = manifest.parse_body(canonical.encode(fields))
    assert value == fields
    assert found == manifest.Manifest(
        product="toy",
        version="1.1.0",
        sequence=5,
        issued_at=making.ISSUED,
        expires_at=making.EXPIRES,
        keys=tuple(manifest.Key(one.public.kid, one.public.alg, one.public.spki) for one in making.three()),
        artifacts=(
            manifest.Artifact("x", "linux-amd64", making.SHA256, 12, "binary", None),
            manifest.Artifact("toy_1.1.0_linux_amd64", "linux-amd64", making.SHA256, 12, "tar.gz", "full"),
        ),
        channel="beta",
        min_from="1.0.0",
    )


def test_the_optional_fields_have_defaults() -> None:
    """Channel stable, no stepping stone, a plain binary."""
    found, _value = manifest.parse_body(making.body())
    assert (found.channel, found.min_from) == ("stable", None)
    assert (found.artifacts[0].kind, found.artifacts[0].variant) == ("binary", None)
    assert manifest.Manifest(*found[:7]) == found
    assert manifest.Artifact(*found.artifacts[0][:4]) == found.artifacts[0]


def test_the_shape_does_not_ask_for_the_canonical_form() -> None:
    """That is judged after the signatures."""
    spread = json.dumps(making.body_fields(), indent=2).encode()
    assert manifest.parse_body(spread)[0] == manifest.parse_body(making.body())[0]


@pytest.mark.parametrize("name", manifest.BODY_FIELDS)
def test_no_field_may_be_missing(name: str) -> None:
    """Each needed field in turn."""
    assert bad(**{name: None}) == "the whole has no " + name


@pytest.mark.parametrize("name", ["Version", "version ", "extra", "minfrom"])
def test_no_field_may_be_added_or_spelled_otherwise(name: str) -> None:
    """`Version` beside `version` could read differently elsewhere."""
    assert bad(**{name: "1.0.0"}) == "the whole has the unknown field '%s'" % name


def test_missing_and_unknown_fields_are_told_together() -> None:
    """And at most three unknown ones."""
    text = bad(product=None, a=1, b=1, c=1, d=1)
    assert text == "the whole has no product, the unknown field 'a', the unknown field 'b', the unknown field 'c'"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("type", "bettercompute.release", "type must be 'slotward.release', not 'bettercompute.release'"),
        ("type", 1, "type must be a string, not 1"),
        ("spec", 3, "spec must be 1 or 2 (a newer agent may read it), not 3"),
        ("spec", True, "spec must be a positive integer, not True"),
        ("spec", "1", "spec must be a positive integer, not '1'"),
        ("product", "Toy", "product must be 1 to 64 of a-z, 0-9 and -, a letter first, not 'Toy'"),
        ("product", "", "product must be 1 to 64 of a-z, 0-9 and -, a letter first, not ''"),
        ("product", "toy\n", "product must be 1 to 64 of a-z, 0-9 and -, a letter first, not 'toy\\n'"),
        ("product", "../toy", "product must be 1 to 64 of a-z, 0-9 and -, a letter first, not '../toy'"),
        ("version", "1.1", "version must be a semantic version such as 1.4.0, not '1.1'"),
        ("version", 11, "version must be a string, not 11"),
        ("sequence", 0, "sequence must be a positive integer, not 0"),
        ("sequence", 10**15, "sequence must be at most 999999999999999, not 1000000000000000"),
        ("sequence", -5, "sequence must be a positive integer, not -5"),
        ("sequence", True, "sequence must be a positive integer, not True"),
        ("issuedAt", 5, "issuedAt must be a string, not 5"),
        ("issuedAt", "today", "issuedAt: 'today' is not a time like 2026-01-31T23:59:59Z"),
        ("expiresAt", "2026-02-30T00:00:00Z", "expiresAt: '2026-02-30T00:00:00Z' names a day that does not exist"),
        (
            "expiresAt",
            "2026-01-01T00:00:00Z",
            "expiresAt 2026-01-01T00:00:00Z is not after issuedAt 2026-01-01T00:00:00Z",
        ),
        ("channel", "", "channel must be 1 to 32 letters, digits, _, / and -, not ''"),
        ("channel", "a b", "channel must be 1 to 32 letters, digits, _, / and -, not 'a b'"),
        ("channel", 1, "channel must be a string, not 1"),
        ("minFrom", "1", "minFrom must be a semantic version such as 1.4.0, not '1'"),
        ("keys", {}, "keys must be a list, not {}"),
        ("keys", [], "keys must be 1 to 16, not 0"),
        ("keys", [1], "keys[0] must be an object, not 1"),
        ("artifacts", [], "artifacts must be at least one, not 0"),
        ("artifacts", "x" * 80, "artifacts must be a list, not '" + "x" * 56 + "..."),
    ],
)
def test_every_field_has_its_rule(name: str, value: object, text: str) -> None:
    """The error names field, rule and value."""
    assert bad(**{name: value}) == text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("name", "../x", "must be a plain file name of letters, digits, . _ + and -, not '../x'"),
        ("name", ".x", "must be a plain file name of letters, digits, . _ + and -, not '.x'"),
        ("name", "a/b", "must be a plain file name of letters, digits, . _ + and -, not 'a/b'"),
        ("name", "a\x00", "must be a plain file name of letters, digits, . _ + and -, not 'a\\x00'"),
        ("platform", "linux", "must be os-arch, such as linux-amd64, not 'linux'"),
        ("platform", "Linux-amd64", "must be os-arch, such as linux-amd64, not 'Linux-amd64'"),
        ("sha256", "AB" * 32, "must be 64 lower-case hexadecimal digits, not '" + "AB" * 28 + "..."),
        ("sha256", "ab" * 31, "must be 64 lower-case hexadecimal digits, not '" + "ab" * 28 + "..."),
        ("size", 0, "must be a positive integer, not 0"),
        ("kind", "zip", "must be binary or tar.gz, not 'zip'"),
        ("kind", 1, "must be a string, not 1"),
        ("variant", "A", "must be 1 to 32 of a-z, 0-9, _ and -, not 'A'"),
    ],
)
def test_every_field_of_an_artifact_has_its_rule(name: str, value: object, text: str) -> None:
    """The path names the artifact too."""
    first = making.artifact_fields(name="first")
    assert bad(artifacts=[first, making.artifact_fields(**{name: value})]) == "artifacts[1].%s %s" % (name, text)


def keys_with(**changes: object) -> List[Dict[str, object]]:
    """One key, changed."""
    return [{**making.key_fields(making.key(1).public), **changes}]


def test_every_field_of_a_key_has_its_rule() -> None:
    """Algorithm, key id, base64, and a key of the kind that the algorithm says."""
    ed25519 = making.key(2, keys.EDDSA).public.spki
    assert bad(keys=keys_with(alg="RS256")) == "keys[0].alg must be ES256 or EdDSA, not 'RS256'"
    assert bad(keys=keys_with(kid="a b")) == "keys[0].kid must be 1 to 128 letters, digits and . _ : + / = -, not 'a b'"
    assert bad(keys=keys_with(spki="A===")).startswith("keys[0].spki: not base64")
    assert bad(keys=keys_with(spki=1)) == "keys[0].spki must be a string, not 1"
    assert bad(keys=keys_with(spki=making.b64(ed25519))) == "keys[0].spki is not a plain ES256 public key in DER"
    assert bad(keys=keys_with(spki="")) == "keys[0].spki is not a plain ES256 public key in DER"
    assert bad(keys=keys_with(more=1)) == "keys[0] has the unknown field 'more'"


def with_text(path: str, text: str) -> bytes:
    """A body in which a text is changed: of the body, or of its first artifact or key."""
    whole, name = path.rpartition(".")[::2]
    if not whole:
        return making.body(**{name: text})
    first = making.artifact_fields() if whole == "artifacts" else making.key_fields(making.key(1).public)
    return making.body(**{whole: [{**first, name: text}]})


@pytest.mark.parametrize(
    ("path", "taken", "refused"),
    [
        ("product", ["a", "z0-9a", "a" * 64], ["a" * 65, "-a", "0a", "a_b", "a.b"]),
        ("channel", ["b", "Az0B9_/-z", "9", "c" * 32], ["c" * 33, "_a", "/a", "-a", "a.b", "a\n"]),
        ("keys.kid", ["=", "AZaz09._:+/=-", "k" * 128], ["k" * 129, "a,b", "a\n"]),
        ("artifacts.name", ["x", "Z.z_a+b-A0", "9", "n" * 255], ["n" * 256, "_a", "+a", "-a", "a b", "a\n"]),
        ("artifacts.platform", ["a-0", "z9a-z_0a", "a" * 32 + "-" + "b" * 32], ["a" * 33 + "-b", "a-" + "b" * 33]),
        ("artifacts.platform", ["linux-9"], ["9a-b", "a_b-c", "a-_b", "a-b-c", "a-", "-b", "a,b", "a-b\n"]),
        (
            "artifacts.sha256",
            ["0123456789abcdef" * 4],
            ["a" * 63, "a" * 65, "a" * 63 + "g", "a" * 63 + "A", "a" * 64 + "\n"],
        ),
        ("artifacts.variant", ["a", "9", "z_0-a", "v" * 32], ["", "v" * 33, "_a", "-a", "a.b", "a\n"]),
    ],
)
def test_every_text_has_its_letters_and_its_length(path: str, taken: List[str], refused: List[str]) -> None:
    """Each letter that is allowed, the longest that is, and what is next to them."""
    for text in taken:
        manifest.parse_body(with_text(path, text))
    for text in refused:
        with pytest.raises(manifest.BadManifest):
            manifest.parse_body(with_text(path, text))


@pytest.mark.parametrize(
    "point",
    [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000080",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    ],
)
def test_a_key_of_small_order_is_none(point: str) -> None:
    """One signature fits any message there, even when somebody was talked into pinning it."""
    spki = manifest.SPKI_SHAPES["EdDSA"][0] + bytes.fromhex(point)
    assert manifest.alg_of(spki) is None
    assert manifest.alg_of(manifest.SPKI_SHAPES["ES256"][0] + bytes.fromhex(point) * 2) == "ES256"  # no matter there
    assert (
        bad(keys=keys_with(alg="EdDSA", spki=making.b64(spki))) == "keys[0].spki is not a plain EdDSA public key in DER"
    )


@pytest.mark.parametrize("y", [2, 2**255 - 21])
def test_a_key_beside_those_points_is_one(y: int) -> None:
    """The refusal of points of small order takes nothing else with it."""
    assert manifest.alg_of(manifest.SPKI_SHAPES["EdDSA"][0] + y.to_bytes(32, "little")) == "EdDSA"


def test_a_key_has_one_encoding_only() -> None:
    """A compressed point would be a second pin for the same key."""
    spki = making.key(1).public.spki
    header, _rest = manifest.SPKI_SHAPES["ES256"]
    point = spki[len(header) :]
    compressed = (
        bytes.fromhex("3039301306072a8648ce3d020106082a8648ce3d030107032200") + bytes([2 + point[63] % 2]) + point[:32]
    )
    ed25519 = making.key(2, keys.EDDSA).public.spki
    assert manifest.alg_of(compressed) is None
    assert manifest.alg_of(header[:-1] + b"\x06" + point) is None  # the hybrid form, as long as the plain one
    assert manifest.alg_of(ed25519.replace(b"\x2b\x65\x70", b"\x2b\x65\x6e")) is None  # X25519, as long as Ed25519
    assert manifest.alg_of(spki + b"\0") is None
    assert manifest.alg_of(spki) == "ES256"


def test_nothing_is_listed_twice() -> None:
    """Key ids, keys and file names are distinct."""
    one, other = making.key_fields(making.key(1).public), making.key_fields(making.key(3).public)
    artifacts = [making.artifact_fields(), making.artifact_fields(platform="linux-arm64")]
    assert bad(keys=[other, one, one]) == "keys[2].kid is the same as that of keys[1]"
    assert bad(keys=[one, {**other, "kid": one["kid"]}]) == "keys[1].kid is the same as that of keys[0]"
    assert bad(keys=[one, {**one, "kid": "other"}]) == "keys[1].spki is the same as that of keys[0]"
    assert bad(artifacts=artifacts) == "artifacts[1].name is the same as that of artifacts[0]"


def test_sixteen_keys_are_the_most() -> None:
    """One more is refused; as many signatures are read."""
    assert manifest.MAX_SIGNATURES == manifest.MAX_KEYS
    many = [making.key_fields(making.key(100 + number, keys.EDDSA).public) for number in range(17)]
    assert len(manifest.parse_body(making.body(keys=many[:16]))[0].keys) == 16
    assert bad(keys=many) == "keys must be 1 to 16, not 17"


def test_a_body_over_one_mebibyte_is_refused() -> None:
    """Before anything in it is looked at."""
    with pytest.raises(manifest.BadManifest, match=r"^the manifest is not plain JSON: 1048577 bytes; at most 1048576"):
        manifest.parse_body(b" " * ((1 << 20) + 1))


@pytest.mark.parametrize("data", [b"[]", b'"x"', b"null"])
def test_a_body_is_an_object(data: bytes) -> None:
    """Other JSON is none."""
    with pytest.raises(manifest.BadManifest, match=r"^the whole must be an object, not "):
        manifest.parse_body(data)


def test_the_published_form_is_read() -> None:
    """Body bytes as they are, signatures as bytes, in any JSON spelling."""
    body, one = making.body(), making.key(1)
    found = manifest.parse_published(b"\n " + making.published(body, [one]) + b"\n")
    assert found.body == body
    assert [signature.kid for signature in found.signatures] == [one.public.kid]
    assert len(found.signatures[0].sig) == keys.SIGNATURE_BYTES


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([], "the whole must be an object, not []"),
        ({"manifest": "QQ=="}, "the whole has no signatures"),
        ({"signatures": []}, "the whole has no manifest"),
        ({"manifest": "QQ==", "signatures": [], "threshold": 1}, "the whole has the unknown field 'threshold'"),
        ({"manifest": "QQ", "signatures": []}, "manifest: not base64 (standard alphabet, padded, on one line)"),
        ({"manifest": "QQ==\n", "signatures": []}, "manifest: not base64 (standard alphabet, padded, on one line)"),
        ({"manifest": {}, "signatures": []}, "manifest must be a string, not {}"),
        ({"manifest": "QQ==", "signatures": {}}, "signatures must be a list, not {}"),
        ({"manifest": "QQ==", "signatures": ["x"]}, "signatures[0] must be an object, not 'x'"),
        ({"manifest": "QQ==", "signatures": [{"kid": "a"}]}, "signatures[0] has no sig"),
        (
            {"manifest": "QQ==", "signatures": [{"kid": "", "sig": ""}]},
            "signatures[0].kid must be 1 to 128 letters, digits and . _ : + / = -, not ''",
        ),
        (
            {"manifest": "QQ==", "signatures": [{"kid": "a", "sig": "QR=="}]},
            "signatures[0].sig: not the one base64 spelling of its bytes (padding or unused bits)",
        ),
    ],
)
def test_every_field_of_the_published_form_has_its_rule(value: object, text: str) -> None:
    """As for the body."""
    with pytest.raises(manifest.BadManifest) as error:
        manifest.parse_published(json.dumps(value).encode())
    assert str(error.value) == text


def test_a_published_form_over_two_mebibytes_is_refused() -> None:
    """Base64 of the largest body fits below that."""
    with pytest.raises(manifest.BadManifest, match=r"^the document is not plain JSON: 2097153 bytes; at most"):
        manifest.parse_published(b" " * ((2 << 20) + 1))
    large = making.body(artifacts=[making.artifact_fields(name="n%d" % number) for number in range(7500)])
    assert 900_000 < len(large) <= manifest.MAX_BODY
    assert manifest.parse_published(making.published(large)).body == large


def test_every_sequence_that_is_taken_fits_a_trial_record() -> None:
    """A release whose trial could not be recorded would go back however well it ran."""
    for sequence, fits in ((manifest.MAX_SEQUENCE, True), (manifest.MAX_SEQUENCE + 1, False)):
        record = trial.Trial(
            "0" * 16,
            "toy",
            "1.0.0",
            "1.1.0",
            "a",
            "b",
            sequence,
            "0" * 8 + "-0000" * 3 + "-" + "0" * 12,
            60,
            9,
            3,
            "-",
            "a" * 64,
            "b" * 64,
        )
        assert (trial.parse_trial(trial.render_trial(record)) is not None) is fits
    assert manifest.parse_body(making.body(sequence=manifest.MAX_SEQUENCE))[0].sequence == manifest.MAX_SEQUENCE
    assert config.MAX_SEQUENCE == manifest.MAX_SEQUENCE


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("linux-amd64", True), ("linux-x86_64", True), ("linux", False), ("linux-amd64\n", False), ("-amd64", False)],
)
def test_platforms_are_recognised(text: str, is_one: bool) -> None:
    """os-arch, in small letters."""
    assert manifest.is_platform(text) is is_one


@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_any_bytes_are_a_manifest_or_a_bad_one(data: bytes) -> None:
    """No other error comes out."""
    for parse in (manifest.parse_body, manifest.parse_published):
        with pytest.raises(manifest.BadManifest):
            parse(data)


@given(
    st.sampled_from(sorted(making.body_fields(channel="beta", minFrom="1.0.0"))),
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
)
def test_a_field_of_another_kind_never_slips_through(name: str, value: object) -> None:
    """Any value of another type or grammar is a bad manifest; what is taken reads back as it was."""
    fields = {**making.body_fields(channel="beta", minFrom="1.0.0"), name: value}
    data = json.dumps(fields).encode()
    try:
        found, read = manifest.parse_body(data)
    except manifest.BadManifest:
        return
    assert read == fields
    assert str(value) in (found.product, str(found.sequence), found.channel, "1")


def test_a_catalogue_is_told_from_a_document() -> None:
    """Nobody signs it, so it is no published manifest with fields that are missing."""
    text = r"^it is a catalogue \(releases\.json\), which nobody signs: give the manifest\.json of a release$"
    with pytest.raises(manifest.BadManifest, match=text):
        manifest.parse_published(b'{"product":"toy","releases":[],"spec":1}')


def test_a_document_with_a_field_of_a_catalogue_is_no_catalogue() -> None:
    """The field is what is wrong with it."""
    data = b'{"manifest": "", "releases": [], "signatures": []}'
    with pytest.raises(manifest.BadManifest, match="releases") as raised:
        manifest.parse_published(data)
    assert "catalogue" not in str(raised.value)
