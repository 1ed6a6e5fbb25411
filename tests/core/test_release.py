# SPDX-License-Identifier: GPL-3.0-or-later
"""Making releases: build, sign, merge and describe, and that hosts take the result."""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import Any, List, Tuple

import pytest
from core import making
from hypothesis import given
from hypothesis import strategies as st

from slotcore import canonical, checks, codes, describing, keys, manifest, release, signatures, signing

KEYS = making.three()


def wanted(**changes: Any) -> manifest.Manifest:
    """The manifest of most tests, as `release.build` takes it."""
    plain = manifest.Manifest(
        product="toy",
        version="1.1.0",
        sequence=5,
        issued_at=making.ISSUED,
        expires_at=making.EXPIRES,
        keys=tuple(release.key(one.public) for one in KEYS),
        artifacts=(release.artifact("toy", "1.1.0", making.PLATFORM, making.SHA256, 12),),
    )
    return plain._replace(**changes)


def built(**changes: Any) -> bytes:
    """Its published form, unsigned."""
    return release.build(None, wanted(**changes)).published


def signed(published: bytes, *numbers: int) -> bytes:
    """With signatures of some of the three keys."""
    for number in numbers:
        published = signing.sign(published, KEYS[number].public, KEYS[number].sign).published
    return published


def refused(error: pytest.ExceptionInfo[codes.Refused]) -> Tuple[str, str]:
    """Code and text."""
    return error.value.code, error.value.text


def test_a_variant_has_a_name_of_its_own_and_the_kind_none() -> None:
    """Hosts look for one name, whatever the kind."""
    full = release.artifact("toy", "1.1.0", "linux-amd64", making.SHA256, 7, "tar.gz", "full")
    assert (full.name, full.kind, full.variant) == ("toy_1.1.0_linux_amd64_full", "tar.gz", "full")
    assert release.artifact("toy", "1.1.0", "linux-amd64", making.SHA256, 7, "tar.gz").name == "toy_1.1.0_linux_amd64"


def test_what_is_built_is_what_hosts_read() -> None:
    """Plain values, and all the optional ones."""
    other = manifest.Artifact("toy.tgz", "linux-arm64", "cd" * 32, 7, "tar.gz", "full")
    for one in (wanted(), wanted(channel="beta", min_from="1.0.0", artifacts=(other, *wanted().artifacts))):
        body = release.build_manifest(one)
        assert manifest.parse_body(body)[0] == one
        assert canonical.encode(canonical.decode(body)) == body
    assert release.build_manifest(wanted()) == making.body(), "defaults are left out"


def test_a_release_made_by_two_of_three_is_taken_by_a_host() -> None:
    """The whole way, in each pair and order of signers."""
    for pair in itertools.permutations(range(3), 2):
        published = signed(built(), *pair)
        found = checks.check(making.facts(published))
        assert isinstance(found, checks.Verified)
        assert set(found.signers) == set(making.pins(*pair))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"product": "Toy"},
            "this is no release: product must be 1 to 64 of a-z, 0-9 and -, a letter first, not 'Toy'",
        ),
        ({"version": "1"}, "this is no release: version must be a semantic version such as 1.4.0, not '1'"),
        ({"sequence": 0}, "this is no release: sequence must be a positive integer, not 0"),
        ({"sequence": 2**53}, "this is no release: $.sequence: 9007199254740992 is beyond 2**53 - 1"),
        (
            {"expires_at": 2**50},
            "this is no release: 1125899906842624 seconds since 1970 are not in the years 0001 to 9999",
        ),
        ({"keys": ()}, "this is no release: keys must be 1 to 16, not 0"),
        ({"artifacts": ()}, "this is no release: artifacts must be at least one, not 0"),
        (
            {"keys": (release.key(KEYS[0].public),) * 2},
            "this is no release: keys[1].kid is the same as that of keys[0]",
        ),
        ({"channel": ""}, "this is no release: channel must be 1 to 32 letters, digits, _, / and -, not ''"),
        ({"min_from": "1"}, "this is no release: minFrom must be a semantic version such as 1.4.0, not '1'"),
        ({"min_from": "1.1.1"}, "minFrom 1.1.1 is newer than the release 1.1.0"),
    ],
)
def test_what_hosts_would_refuse_is_not_built(changes: dict[str, Any], text: str) -> None:
    """By the host's own parser."""
    with pytest.raises(codes.Refused) as error:
        built(**changes)
    assert refused(error) == (codes.BAD_RELEASE, text)


@pytest.mark.parametrize(("epoch", "spec"), [(0, 1), (1, 2), (2**53 - 1, 2)])
def test_only_an_epoch_asks_for_the_newer_spec(epoch: int, spec: int) -> None:
    """What has none is written as ever, so that every agent reads it."""
    body = release.build_manifest(wanted(epoch=epoch))
    assert (json.loads(body)["spec"], json.loads(body).get("epoch", 0)) == (spec, epoch)
    assert manifest.parse_body(body)[0].epoch == epoch


def test_a_release_may_ask_for_itself_as_the_stepping_stone() -> None:
    """Only a newer one makes no sense."""
    assert manifest.parse_body(release.build_manifest(wanted(min_from="1.1.0")))[0].min_from == "1.1.0"


def test_building_again_changes_nothing() -> None:
    """At a later time too, and signatures stay."""
    there = signed(built(), 0, 2)
    again = release.build(there, wanted(issued_at=making.ISSUED + 999, expires_at=making.EXPIRES + 999))
    assert again == signing.Result(there, changed=False)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"sequence": 6}, "sequence 5, not 6"),
        ({"channel": "beta", "min_from": "1.0.0"}, "channel stable, not beta; min_from None, not 1.0.0"),
        ({"keys": wanted().keys[:2]}, "other keys"),
        ({"artifacts": (wanted().artifacts[0]._replace(sha256="cd" * 32),)}, "other artifacts"),
    ],
)
def test_another_release_is_not_built_in_its_place(changes: dict[str, Any], text: str) -> None:
    """A version is published once; the refusal names what differs."""
    with pytest.raises(codes.Refused) as error:
        release.build(built(), wanted(**changes))
    way_out = "give a new version and sequence, or remove it by hand"
    assert refused(error) == (codes.ALREADY_EXISTS, "toy 1.1.0 is there with other contents (%s); %s" % (text, way_out))


@pytest.mark.parametrize(
    ("there", "code"),
    [
        (b"", codes.BAD_DOCUMENT),
        (b"{}", codes.BAD_DOCUMENT),
        (making.published(making.body(version="1")), codes.BAD_MANIFEST),
        (making.published(making.body(type="other")), codes.BAD_DOCUMENT),
        (making.published(making.body() + b" "), codes.NOT_CANONICAL),
    ],
)
def test_a_damaged_manifest_is_refused_by_every_step(there: bytes, code: str) -> None:
    """Nothing is signed, merged or described that hosts would refuse."""
    for call in (
        lambda: signing.sign(there, KEYS[0].public, KEYS[0].sign),
        lambda: signing.merge([there]),
        lambda: describing.describe(signing.read(there)),
        lambda: describing.lines(signing.read(there)),
    ):
        with pytest.raises(codes.Refused) as error:
            call()
        assert error.value.code == code
    with pytest.raises(codes.Refused) as error:
        release.build(there, wanted())
    assert error.value.code == (codes.NOT_CANONICAL if code == codes.NOT_CANONICAL else codes.BAD_MANIFEST)


def test_signing_twice_changes_nothing() -> None:
    """The signature that is there stays, although a new one would be another."""
    once = signed(built(), 0)
    assert signing.sign(once, KEYS[0].public, KEYS[0].sign) == signing.Result(once, changed=False)


def test_signatures_stand_in_the_order_of_the_keys() -> None:
    """Whoever signed first."""
    kids = [
        [one.kid for one in signing.read(signed(built(), *order)).form.signatures] for order in ((2, 0, 1), (1, 2, 0))
    ]
    assert kids == [[one.public.kid for one in KEYS]] * 2


def test_a_signature_that_does_not_verify_is_replaced() -> None:
    """By its own key; another key's signing drops it."""
    junk = {"kid": KEYS[0].public.kid, "sig": making.b64(bytes(64))}
    damaged = making.published(making.body(), (), [junk])
    for number in (0, 1):
        result = signing.sign(damaged, KEYS[number].public, KEYS[number].sign)
        assert result.changed
        form = signing.read(result.published).form
        assert [one.kid for one in form.signatures] == [KEYS[number].public.kid]
        assert isinstance(signatures.verify_release(result.published, making.pins(), 1), signatures.VerifiedManifest)


def test_only_a_listed_key_signs() -> None:
    """The refusal shows which are."""
    stranger = making.key(9)
    with pytest.raises(codes.Refused) as error:
        signing.sign(built(), stranger.public, stranger.sign)
    listed = ", ".join(one.public.kid for one in KEYS)
    text = "the release manifest does not list the key %s; it lists %s" % (stranger.public.kid, listed)
    assert refused(error) == (codes.BAD_KEY, text)


def test_a_signer_that_signs_with_another_key_is_caught() -> None:
    """Before its signature is written anywhere."""
    with pytest.raises(codes.Refused) as error:
        signing.sign(built(), KEYS[0].public, KEYS[2].sign)
    assert refused(error) == (
        codes.BAD_KEY,
        "the signature just made by %s does not verify: not that key" % KEYS[0].public.kid,
    )


def test_a_key_is_found_by_what_it_is() -> None:
    """A manifest made elsewhere may name its keys otherwise."""
    named = [{**making.key_fields(one.public), "kid": "k%d" % number} for number, one in enumerate(KEYS)]
    published = making.published(making.body(keys=named))
    result = signing.sign(published, KEYS[1].public, KEYS[1].sign)
    assert [one.kid for one in signing.read(result.published).form.signatures] == ["k1"]


@given(st.lists(st.lists(st.integers(0, 2), max_size=3), min_size=1, max_size=5))
def test_merging_is_the_union_whatever_the_order(copies: List[List[int]]) -> None:
    """Any number of copies, each signed by anybody."""
    unsigned = built()
    merged = signing.merge([signed(unsigned, *one) for one in copies])
    names = {KEYS[number].public.kid for one in copies for number in one}
    assert {one.kid for one in signing.read(merged).form.signatures} == names
    assert signing.merge([merged]) == signing.merge([unsigned, merged]) == merged
    assert signing.read(merged).form.body == signing.read(unsigned).form.body


def test_only_copies_of_one_manifest_are_merged() -> None:
    """The refusal names the file by its place and what differs."""
    with pytest.raises(codes.Refused) as error:
        signing.merge([built(), built(), built(sequence=6)])
    assert refused(error) == (
        codes.RELEASES_DIFFER,
        "file 3 is another release manifest than file 1: sequence 5, not 6",
    )
    with pytest.raises(codes.Refused) as error:
        signing.merge([built(), built(issued_at=making.ISSUED + 1)])
    assert refused(error)[1] == "file 2 is another release manifest than file 1: other times"


def test_a_forged_signature_is_not_merged() -> None:
    """Neither one that does not verify nor one by a key that is not listed."""
    for kid in (KEYS[1].public.kid, "stranger"):
        forged = making.published(making.body(), KEYS[:1], [{"kid": kid, "sig": making.b64(bytes(64))}])
        with pytest.raises(codes.Refused) as error:
            signing.merge([signed(built(), 0), forged])
        text = "the signature by %s in file 2 does not verify; sign again and leave that one out" % kid
        assert refused(error) == (codes.BAD_RELEASE, text)


def test_merging_nothing_is_refused() -> None:
    """There is no release in it."""
    with pytest.raises(codes.Refused) as error:
        signing.merge([])
    assert refused(error) == (codes.BAD_RELEASE, "no documents to merge")


def test_published_bytes_have_one_form() -> None:
    """Canonical JSON and a newline, whatever spelling came in."""
    spread = json.dumps(json.loads(signed(built(), 1)), indent=3).encode()
    published = signing.merge([spread])
    assert published.endswith(b"\n")
    canonical.decode(published[:-1])


def test_a_manifest_of_the_largest_size_can_be_published() -> None:
    """Base64 makes it longer than a body may be."""
    many = tuple(release.artifact("toy", "1.1.0", "linux-a%d" % number, making.SHA256, 1) for number in range(6500))
    published = built(artifacts=many)
    assert len(published) > canonical.MAX_BYTES
    assert len(release.read(published).artifacts) == 6500


def test_a_release_is_described() -> None:
    """As plain values for programs."""
    published = signed(built(min_from="1.0.0", channel="beta"), 2)
    told = describing.describe(signing.read(published))
    assert told == {
        "artifacts": [
            {
                "kind": "binary",
                "name": "toy_1.1.0_linux_amd64",
                "platform": "linux-amd64",
                "sha256": making.SHA256,
                "size": 12,
                "variant": None,
            }
        ],
        "body_sha256": hashlib.sha256(signing.read(published).form.body).hexdigest(),
        "channel": "beta",
        "expires_at": "2027-01-01T00:00:00Z",
        "issued_at": "2026-01-01T00:00:00Z",
        "keys": [
            {"alg": one.public.alg, "kid": one.public.kid, "pin": one.public.pin, "signed": number == 2}
            for number, one in enumerate(KEYS)
        ],
        "manifest_sha256": hashlib.sha256(signing.read(published).form.body).hexdigest(),
        "epoch": 0,
        "min_from": "1.0.0",
        "product": "toy",
        "sequence": 5,
        "kind": "release manifest",
        "signatures": 1,
        "type": "slotward.release",
        "version": "1.1.0",
    }


def test_a_release_is_described_to_people() -> None:
    """Version, times, files, and who has signed."""
    published = signed(built(min_from="1.0.0"), 0)
    lines = describing.lines(signing.read(published))
    body_sha256 = hashlib.sha256(signing.read(published).form.body).hexdigest()
    assert lines[:3] == [
        "toy 1.1.0, sequence 5, channel stable, from 1.0.0 on",
        "issued 2026-01-01T00:00:00Z, expires 2027-01-01T00:00:00Z, body sha256 %s" % body_sha256,
        "file toy_1.1.0_linux_amd64, linux-amd64, 12 bytes, sha256 %s" % making.SHA256,
    ]
    assert lines[3:] == [
        "key %s, %s, %s, %s" % (one.public.kid, one.public.alg, one.public.pin, "not signed" if number else "signed")
        for number, one in enumerate(KEYS)
    ]
    assert describing.lines(signing.read(built()))[0] == "toy 1.1.0, sequence 5, channel stable"


def test_without_the_library_signatures_are_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Describing a signed manifest needs it; an unsigned one is read without."""
    published = signed(built(), 0)

    def missing() -> None:
        raise keys.Unavailable("install python3-cryptography")

    monkeypatch.setattr(keys, "require", missing)
    with pytest.raises(codes.Refused) as error:
        describing.describe(signing.read(published))
    assert refused(error) == (codes.NO_CRYPTOGRAPHY, "install python3-cryptography")
    assert describing.describe(signing.read(built()))["signatures"] == 0


@given(st.lists(st.binary(max_size=30), max_size=6))
def test_a_file_is_measured_in_pieces(chunks: List[bytes]) -> None:
    """As a whole would be."""
    whole = b"".join(chunks)
    assert release.measure(iter(chunks)) == (hashlib.sha256(whole).hexdigest(), len(whole))


def test_a_release_lies_in_its_directory() -> None:
    """By product and version."""
    assert release.directory("toy", "1.1.0") == "toy/1.1.0"
