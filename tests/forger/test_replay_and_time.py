# SPDX-License-Identifier: GPL-3.0-or-later
"""Attacks with genuine documents: everything here was signed by pinned keys, for something else, for others, or long ago."""

from __future__ import annotations

from typing import Dict, List, Tuple

import pytest
from core import making
from forger import forging
from forger.forging import ANA, BEA, EVE, Attack, fields, signed

from slotcore import checks, codes, documents, keys, signatures

YEAR = 365 * 86400
OLD = fields(sequence=3)
NEWER: Dict[str, object] = {"running_version": "1.2.0", "floor": 6}
OTHER_ARCH = fields(artifacts=[making.artifact_fields(name="toy_1.1.0_linux_arm64", platform="linux-arm64")])


def asked(**changes: str) -> Dict[str, object]:
    """A host that is asked for something else than what the genuine manifest releases."""
    return {"target": making.target(forging.sends(forging.by(ANA), forging.by(BEA))(), **changes)}


def asked_for(sends: forging.Sends, **changes: str) -> Dict[str, object]:
    """A control side that names what the forged manifest releases."""
    return {"target": making.target(sends(), **changes)}


GENUINE = signed(forging.GENUINE)
ATTACKS = (
    Attack("other product", codes.WRONG_PRODUCT, "releases tool, not toy", fields(product="tool")),
    Attack(
        "other product: the control side says so too",
        codes.WRONG_PRODUCT,
        "is for tool, not toy",
        GENUINE,
        asked(product="tool"),
    ),
    Attack("other product of a similar name", codes.WRONG_PRODUCT, "releases toy-, not toy", fields(product="toy-")),
    Attack(
        "other version than was asked for", codes.WRONG_VERSION, "1.1.0, not 1.2.0", GENUINE, asked(version="1.2.0")
    ),
    Attack(
        "the same version with another build part",
        codes.WRONG_VERSION,
        "not 1.1.0+evil",
        GENUINE,
        asked(version="1.1.0+evil"),
    ),
    Attack("replayed older manifest", codes.BELOW_FLOOR, "release sequence 3 is older than 6", OLD, NEWER),
    Attack(
        "replayed older manifest under a newer name",
        codes.WRONG_VERSION,
        "releases toy 1.1.0, not 1.3.0",
        OLD,
        {**NEWER, **asked_for(OLD, version="1.3.0")},
    ),
    Attack(
        "replayed older manifest, where no floor is known",
        codes.OLDER_THAN_RUNNING,
        "1.1.0 is older than the running 1.2.0",
        OLD,
        {**NEWER, "floor": 0},
    ),
    Attack(
        "a pre-release of what runs, where no floor is known",
        codes.OLDER_THAN_RUNNING,
        "is older than the running 1.1.0",
        fields(version="1.1.0-rc.1"),
        {**asked_for(fields(version="1.1.0-rc.1"), version="1.1.0-rc.1"), "floor": 0, "running_version": "1.1.0"},
    ),
    Attack(
        "other bytes than the release's", codes.NO_ARTIFACT, "with the release sha256", GENUINE, asked(sha256="cd" * 32)
    ),
    Attack("the build for another machine", codes.NO_ARTIFACT, "lists no toy_1.1.0_linux_amd64", OTHER_ARCH),
    Attack(
        "the digest of another artifact of the same release",
        codes.NO_ARTIFACT,
        "lists no toy_1.1.0_linux_amd64",
        fields(
            artifacts=[
                making.artifact_fields(sha256="cd" * 32),
                making.artifact_fields(name="toy_1.1.0_linux_arm64", platform="linux-arm64"),
            ]
        ),
    ),
    Attack(
        "an artifact called ours for another platform",
        codes.NO_ARTIFACT,
        "lists no",
        fields(artifacts=[making.artifact_fields(platform="linux-arm64")]),
    ),
    Attack(
        "an artifact of a kind that is not run",
        codes.WRONG_KIND,
        "is of kind tar.gz",
        fields(artifacts=[making.artifact_fields(kind="tar.gz")]),
    ),
    Attack(
        "an artifact that fills the disk",
        codes.ARTIFACT_TOO_LARGE,
        "at most 536870912",
        fields(artifacts=[making.artifact_fields(size=2**53 - 1)]),
    ),
    Attack(
        "a release of a channel that the host does not take",
        codes.CHANNEL_NOT_ALLOWED,
        "channel beta",
        fields(channel="beta"),
    ),
    Attack(
        "a jump over a stepping stone", codes.BELOW_MIN_FROM, "takes over from 1.0.1 or later", fields(minFrom="1.0.1")
    ),
    Attack(
        "expired by the host's clock",
        codes.EXPIRED,
        "expired at 2027-01-01T00:00:00Z",
        GENUINE,
        {"now_s": making.EXPIRES},
    ),
    Attack(
        "expired by the host's clock by a year", codes.EXPIRED, "expired at", GENUINE, {"now_s": making.EXPIRES + YEAR}
    ),
    Attack(
        "expired by the server's time",
        codes.EXPIRED,
        "whoever asks says 2027-01-01T00:00:00Z",
        GENUINE,
        {"server_s": making.EXPIRES},
    ),
    Attack(
        "clock set back: a newer release was verified here",
        codes.EXPIRED,
        "so the clock is behind",
        GENUINE,
        {"now_s": 0, "newest_issued": making.EXPIRES},
    ),
    Attack(
        "clock set back, and the server's with it",
        codes.EXPIRED,
        "so the clock is behind",
        GENUINE,
        {"now_s": making.NOW, "server_s": making.NOW, "newest_issued": making.EXPIRES + YEAR},
    ),
    Attack("no manifest", codes.NO_MANIFEST, "no signed release manifest", lambda: b""),
    Attack("no pins, so that anything would do", codes.NO_PINS, "no release keys are pinned", GENUINE, {"pins": ()}),
    Attack(
        "a version that is a path",
        codes.NOT_A_RELEASE,
        "is not a release version",
        GENUINE,
        asked(version="1.1.0/../../evil"),
    ),
    Attack("a digest that is none", codes.BAD_DIGEST, "must be 32 bytes", GENUINE, asked(sha256="ab" * 31 + "a\n")),
    Attack(
        "a version that failed here",
        codes.FAILED_BEFORE,
        "failed here: why",
        GENUINE,
        {"failed": {"1.1.0": ("crash-loop", "why")}},
    ),
)


@pytest.mark.parametrize("attack", ATTACKS, ids=forging.names(ATTACKS))
def test_it_is_refused_by_name(attack: Attack) -> None:
    """The code names the attack, and the words say where."""
    refusal = forging.judged(attack)
    assert refusal is not None
    assert (refusal.code, attack.says in refusal.text) == (attack.code, True), refusal


def test_no_clock_that_is_behind_makes_a_release_unusable() -> None:
    """A host that starts in 1970 must be able to update, and nobody who gives an early time changes that (N11)."""
    found = checks.check(making.facts(GENUINE(), now_s=0, server_s=1, newest_issued=making.ISSUED))
    assert isinstance(found, checks.Verified)


# --- documents of one kind in another's place ---

Place = Tuple[documents.Kind, documents.Kind]
PLACES: List[Place] = [(meant, used) for meant in documents.KINDS for used in documents.KINDS if meant is not used]


def body_of(kind: documents.Kind) -> bytes:
    """A genuine body of a kind."""
    return forging.GENUINE if kind is documents.RELEASE else making.document(kind)


def named(place: Place) -> str:
    """For pytest's output."""
    return "%s for a %s" % (place[0].name, place[1].name)


@pytest.mark.parametrize("place", PLACES, ids=named)
def test_a_genuine_document_in_anothers_place(place: Place) -> None:
    """Shape: its type is not the one that is wanted there."""
    meant, used = place
    found = signatures.verify(making.published(body_of(meant), (ANA, BEA), kind=meant), used, making.pins(), 2)
    assert isinstance(found, codes.Refusal)
    assert (found.code, used.name in found.text) == (used.bad_shape, True), found


@pytest.mark.parametrize("place", PLACES, ids=named)
def test_genuine_signatures_moved_to_a_document_of_another_kind(place: Place) -> None:
    """Even over the very same bytes: the purpose is signed too."""
    meant, used = place
    moved = making.published(body_of(used), (ANA, BEA), kind=meant)
    found = signatures.verify(moved, used, making.pins(), 2)
    assert isinstance(found, codes.Refusal)
    assert (found.code, "it does not verify" in found.text) == (codes.TOO_FEW_SIGNATURES, True), found


def made(kind: documents.Kind, *signers: keys.PrivateKey, **changes: object) -> forging.Sends:
    """A document with other values, signed by these."""
    return lambda: making.published(making.document(kind, **changes), signers, kind=kind)


def spelled(kind: documents.Kind, before: bytes, after: bytes) -> forging.Sends:
    """A document in which something is spelled otherwise, signed by pinned keys."""

    def sends() -> bytes:
        body = making.document(kind)
        if body.count(before) != 1:
            raise AssertionError("%r is %d times in the body" % (before, body.count(before)))
        return making.published(body.replace(before, after), (ANA, BEA), kind=kind)

    return sends


def added_to() -> bytes:
    """A permit that was given for one host, with a second one in it."""
    genuine = [making.signature_fields(making.document(PERMIT), one, PERMIT) for one in (ANA, BEA)]
    return making.published(making.document(PERMIT, hosts=[making.MACHINE_ID, "f" * 32]), (), genuine)


SET, PERMIT, NOTICE = documents.KEY_SET, documents.PERMIT, documents.WITHDRAWAL
BAD, FEW, FORM = codes.BAD_DOCUMENT, codes.TOO_FEW_SIGNATURES, codes.NOT_CANONICAL
ANAS = making.pins(0)
PIN, LOUD = ANAS[0].encode(), ANAS[0].replace("sha", "SHA").encode()
EVES = {"pins": [EVE.public.pin], "threshold": 1, "keys": [making.key_fields(EVE.public)]}
# fmt: off
FORGED = (
    ("a key set that its own new key signed", SET, FEW, made(SET, EVE, **EVES)),
    ("a key set that one of two signed", SET, FEW, made(SET, ANA)),
    ("a key set whose threshold is 0", SET, BAD, spelled(SET, b'"threshold":2', b'"threshold":0')),
    ("a key set whose threshold nobody can reach", SET, BAD, spelled(SET, b'"threshold":2', b'"threshold":4')),
    ("a key set without pins", SET, BAD, made(SET, ANA, BEA, pins=[], threshold=1)),
    ("a key set with one pin twice", SET, BAD, made(SET, ANA, BEA, pins=[*ANAS, *ANAS])),
    ("a key set with a pin in another spelling", SET, BAD, spelled(SET, PIN, LOUD)),
    ("a key set with a field twice", SET, BAD, spelled(SET, b'"sequence":1', b'"sequence":1,"sequence":2')),
    ("a key set with `Pins` beside `pins`", SET, BAD, spelled(SET, b'"pins":', b'"Pins":[],"pins":')),
    ("a key set in another order", SET, FORM, spelled(SET, b'"sequence":1,"spec":1', b'"spec":1,"sequence":1')),
    ("a key set that does not expire", SET, BAD, made(SET, ANA, BEA, expiresAt=None)),
    ("a permit for every host", PERMIT, BAD, made(PERMIT, ANA, BEA, hosts=["*"])),
    ("a permit for no host", PERMIT, BAD, made(PERMIT, ANA, BEA, hosts=[])),
    ("a permit whose hosts were added to", PERMIT, FEW, added_to),
    ("a permit with an id that is a path", PERMIT, BAD, made(PERMIT, ANA, BEA, id="../../etc/passwd")),
    ("a permit that the forger signed", PERMIT, FEW, made(PERMIT, EVE, ANA)),
    ("a withdrawal that the forger signed", NOTICE, FEW, made(NOTICE, EVE)),
    ("a withdrawal whose reason clears the screen", NOTICE, BAD, made(NOTICE, ANA, BEA, why="\x1b[2J all is well")),
    ("a withdrawal whose reason is a second line", NOTICE, BAD, made(NOTICE, ANA, BEA, why="ok\nok: taken")),
    ("a withdrawal whose reason turns the text about", NOTICE, BAD, made(NOTICE, ANA, BEA, why="a\u202eb")),
)
# fmt: on


@pytest.mark.parametrize(("kind", "code", "sends"), [row[1:] for row in FORGED], ids=[row[0] for row in FORGED])
def test_a_forged_document_is_refused_by_name(kind: documents.Kind, code: str, sends: forging.Sends) -> None:
    """The same rules for every kind."""
    found = signatures.verify(sends(), kind, making.pins(), 2)
    assert isinstance(found, codes.Refusal)
    assert found.code == code, found


@pytest.mark.parametrize("kind", documents.KINDS, ids=lambda kind: str(kind.name))
def test_the_genuine_document_is_taken(kind: documents.Kind) -> None:
    """Else every row above would prove nothing."""
    found = signatures.verify(making.published(body_of(kind), (ANA, BEA), kind=kind), kind, making.pins(), 2)
    assert isinstance(found, signatures.Verified)
