# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue is read strictly, written in one form, and repairs itself from what is published."""

from __future__ import annotations

import json
from typing import Any, Dict, Optional

import pytest
from core import making
from hypothesis import given
from hypothesis import strategies as st

from slotcore import catalogue, codes, documents, publishing, release, signing

KEYS = making.three()


def entry(version: str, sequence: int, **changes: Any) -> catalogue.Entry:
    """What a catalogue claims of a release."""
    plain = catalogue.Entry(version, sequence, "stable", making.ISSUED, making.EXPIRES, making.SHA256, False)
    return plain._replace(**changes)


def entry_fields(**changes: object) -> Dict[str, object]:
    """The same as a plain object; None takes a field away."""
    plain: Dict[str, object] = {
        "channel": "stable",
        "expiresAt": "2027-01-01T00:00:00Z",
        "issuedAt": "2026-01-01T00:00:00Z",
        "manifestSha256": making.SHA256,
        "sequence": 5,
        "version": "1.1.0",
        "withdrawn": False,
    }
    return {name: value for name, value in {**plain, **changes}.items() if value is not None}


def text(*releases: object, **changes: object) -> bytes:
    """A catalogue's bytes, in any spelling."""
    return json.dumps({"product": "toy", "releases": list(releases), "spec": 1, **changes}).encode()


def published(version: str, sequence: int, *numbers: int, **changes: object) -> bytes:
    """A signed release of the toy."""
    body = making.body(version=version, sequence=sequence, **changes)
    return making.published(body, [KEYS[number] for number in numbers])


def notice(version: str, sequence: int, *numbers: int, **changes: object) -> bytes:
    """A signed withdrawal."""
    body = making.document(documents.WITHDRAWAL, version=version, sequence=sequence, **changes)
    return making.published(body, [KEYS[number] for number in numbers], kind=documents.WITHDRAWAL)


def shelf(
    *, listed: Optional[bytes] = None, notices: Optional[Dict[str, bytes]] = None, **by: bytes
) -> publishing.Shelf:
    """What is published, the versions' dots as underscores."""
    return publishing.Shelf({name[1:].replace("_", "."): data for name, data in by.items()}, notices or {}, listed)


def refusal(call: Any) -> codes.Refusal:
    """The refusal that a call ends in."""
    with pytest.raises(codes.Refused) as error:
        call()
    return error.value.refusal


def last(plan: publishing.Plan) -> catalogue.Catalogue:
    """The catalogue that a plan writes."""
    assert plan.writes[-1].path == "toy/releases.json"
    return catalogue.parse(plan.writes[-1].data)


@given(st.lists(st.integers(1, 10**9), unique=True, max_size=6))
def test_what_is_written_is_read_again(sequences: Any) -> None:
    """The newest first, whatever order it was given in, and byte for byte the same."""
    entries = tuple(entry("1.0.%d" % one, one, min_from="1.0.0" if one % 2 else None) for one in sequences)
    data = catalogue.encode("toy", entries)
    found = catalogue.parse(data)
    assert found.product == "toy"
    assert [one.sequence for one in found.releases] == sorted(sequences, reverse=True)
    assert set(found.releases) == set(entries)
    assert catalogue.encode("toy", found.releases) == data
    assert data.endswith(b"\n")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not plain JSON"),
        (b"[]", "must be an object"),
        (text(spec=2), "spec must be 1"),
        (text(product="Toy"), "product must be"),
        (text(more=1), "unknown field 'more'"),
        (text(1), "releases[0] must be an object"),
        (text(entry_fields(withdrawn=0)), "releases[0].withdrawn must be true or false, not 0"),
        (text(entry_fields(manifestSha256="AB" * 32)), "releases[0].manifestSha256 must be 64 lower-case"),
        (text(entry_fields(minFrom="1")), "releases[0].minFrom must be a semantic version"),
        (text(entry_fields(channel="a b")), "releases[0].channel must be"),
        (text(entry_fields(sequence=None)), "releases[0] has no sequence"),
        (text(entry_fields(), entry_fields(sequence=4)), "releases[1].version is the same as that of releases[0]"),
        (
            text(entry_fields(), entry_fields(version="2.0.0")),
            "releases[1].sequence is 5 after 5: the newest comes first",
        ),
    ],
)
def test_a_damaged_catalogue_is_refused(data: bytes, said: str) -> None:
    """By the field."""
    with pytest.raises(catalogue.BadCatalogue) as error:
        catalogue.parse(data)
    assert said in str(error.value)


def test_a_catalogue_that_grew_too_large_is_refused() -> None:
    """It is never written so that nobody can read it."""
    entries = tuple(entry("1.0.%d" % one, one) for one in range(1, 6000))
    assert refusal(lambda: catalogue.encode("toy", entries)).code == codes.BAD_RELEASE


def test_a_release_is_published_before_it_is_listed() -> None:
    """Its manifest first, the catalogue last; publishing again writes nothing."""
    offered = published("1.1.0", 5, 0, 1)
    plan = publishing.plan_release(shelf(v1_0_0=published("1.0.0", 4, 0)), offered)
    assert [one.path for one in plan.writes] == ["toy/1.1.0/manifest.json", "toy/releases.json"]
    assert plan.directory == "toy/1.1.0"
    assert [one.name for one in plan.artifacts] == ["toy_1.1.0_linux_amd64"]
    assert [(one.version, one.sequence) for one in last(plan).releases] == [("1.1.0", 5), ("1.0.0", 4)]
    assert last(plan).releases[0].manifest_sha256 == signing.read(offered).sha256
    there = shelf(v1_0_0=published("1.0.0", 4, 0), v1_1_0=plan.writes[0].data, listed=plan.writes[1].data)
    assert publishing.plan_release(there, offered).writes == ()


def test_signatures_are_added_to_what_is_published() -> None:
    """None is lost; the catalogue stays as it is."""
    body = making.body()
    first = publishing.plan_release(shelf(), making.published(body, [KEYS[0]]))
    there = shelf(v1_1_0=first.writes[0].data, listed=first.writes[1].data)
    second = publishing.plan_release(there, making.published(body, [KEYS[2]]))
    assert [one.path for one in second.writes] == ["toy/1.1.0/manifest.json"]
    assert len(signing.good(signing.read(second.writes[0].data))) == 2


def test_other_bytes_never_take_a_releases_place() -> None:
    """Nor does a second version take its sequence, nor is an unsigned one published."""
    there = shelf(v1_1_0=published("1.1.0", 5, 0))
    found = refusal(lambda: publishing.plan_release(there, published("1.1.0", 6, 0)))
    assert found.code == codes.ALREADY_EXISTS
    assert "never overwritten" in found.text
    found = refusal(lambda: publishing.plan_release(there, published("1.2.0", 5, 0)))
    assert found == (
        codes.BAD_RELEASE,
        "sequence 5 is that of the published release 1.1.0 already: build 1.2.0 with a higher one",
    )
    assert refusal(lambda: publishing.plan_release(shelf(), published("1.1.0", 5))).code == codes.TOO_FEW_SIGNATURES


def test_what_cannot_be_listed_is_told_and_left_out() -> None:
    """Damaged, unsigned, or lying in another version's place; the rest of the catalogue is as it should be."""
    there = shelf(
        v1_0_0=b"damaged",
        v1_0_1=published("1.0.1", 3),
        v1_0_2=published("1.0.3", 4, 0),
        listed=b"damaged too",
    )
    plan = publishing.plan_release(there, published("1.1.0", 5, 0))
    assert [one.version for one in last(plan).releases] == ["1.1.0"]
    assert [one.partition(": ")[0] for one in plan.ignored] == ["1.0.0", "1.0.1", "1.0.2"]
    assert "nobody has signed it" in plan.ignored[1]
    assert "the manifest there is of toy 1.0.3" in plan.ignored[2]


def test_a_withdrawal_goes_beside_its_release_and_marks_the_catalogue() -> None:
    """Publishing it again changes nothing."""
    there = shelf(v1_1_0=published("1.1.0", 5, 0), v1_0_0=published("1.0.0", 4, 0))
    plan = publishing.plan_notice(there, notice("1.1.0", 5, 0, 1))
    assert [one.path for one in plan.writes] == ["toy/1.1.0/withdrawn.json", "toy/releases.json"]
    assert plan.artifacts == ()
    assert [(one.version, one.withdrawn) for one in last(plan).releases] == [("1.1.0", True), ("1.0.0", False)]
    done = there._replace(notices={"1.1.0": plan.writes[0].data}, catalogue=plan.writes[1].data)
    assert publishing.plan_notice(done, notice("1.1.0", 5, 0, 1)).writes == ()
    again = publishing.plan_release(done, published("1.1.0", 5, 1))
    assert [one.path for one in again.writes] == ["toy/1.1.0/manifest.json"], "the mark stays"


def test_a_release_and_its_withdrawal_are_planned_together() -> None:
    """The second as if the first were written; what is on the shelf when all is done needs nothing more."""
    offered = [published("1.1.0", 5, 0), notice("1.1.0", 5, 1)]
    plans = publishing.plan(shelf(v1_0_0=published("1.0.0", 4, 0)), offered)
    assert [[one.path for one in plan.writes] for plan in plans] == [
        ["toy/1.1.0/manifest.json", "toy/releases.json"],
        ["toy/1.1.0/withdrawn.json", "toy/releases.json"],
    ]
    assert [(one.version, one.withdrawn) for one in last(plans[1]).releases] == [("1.1.0", True), ("1.0.0", False)]
    done = shelf(v1_0_0=published("1.0.0", 4, 0))
    for plan in plans:
        done = publishing.after(done, plan)
    assert set(done.manifests) == {"1.0.0", "1.1.0"}
    assert set(done.notices) == {"1.1.0"}
    assert [plan.writes for plan in publishing.plan(done, offered)] == [(), ()]
    assert refusal(lambda: publishing.plan(shelf(), offered[::-1])).code == codes.BAD_RELEASE


def test_a_withdrawal_of_something_else_has_no_place() -> None:
    """Not published here, of another sequence, unsigned, or another notice than the one that is there."""
    there = shelf(v1_1_0=published("1.1.0", 5, 0))
    assert refusal(lambda: publishing.plan_notice(shelf(), notice("1.1.0", 5, 0))).code == codes.BAD_RELEASE
    found = refusal(lambda: publishing.plan_notice(there, notice("1.1.0", 6, 0)))
    assert found.code == codes.RELEASES_DIFFER
    assert "sequence 6; what is published is toy, sequence 5" in found.text
    assert refusal(lambda: publishing.plan_notice(there, notice("1.1.0", 5))).code == codes.TOO_FEW_SIGNATURES
    done = there._replace(notices={"1.1.0": notice("1.1.0", 5, 0)})
    found = refusal(lambda: publishing.plan_notice(done, notice("1.1.0", 5, 0, why="something else")))
    assert found.code == codes.ALREADY_EXISTS


@pytest.mark.parametrize(
    "beside", [b"damaged", notice("1.1.0", 6, 0), notice("1.1.0", 5), published("1.1.0", 5, 0)], ids=range(4)
)
def test_what_is_no_notice_marks_nothing(beside: bytes) -> None:
    """Damaged, of another sequence, unsigned, or no withdrawal."""
    plan = publishing.plan_release(shelf(notices={"1.1.0": beside}), published("1.1.0", 5, 0))
    assert [one.withdrawn for one in last(plan).releases] == [False]


def test_an_entry_says_what_the_manifest_says() -> None:
    """Channel and stepping stone too."""
    offered = published("1.1.0", 5, 0, channel="beta", minFrom="1.0.0")
    found = last(publishing.plan_release(shelf(), offered)).releases[0]
    body = release.read(offered)
    assert found == catalogue.entry(signing.read(offered), body, False)
    assert (found.channel, found.min_from, found.issued_at) == ("beta", "1.0.0", body.issued_at)
