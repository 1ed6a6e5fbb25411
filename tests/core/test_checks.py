# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's checks: each row's code and sentence, and the order of the rows."""

from __future__ import annotations

import itertools
import json
import pathlib
import re
from typing import Callable, Dict, List, Mapping, NamedTuple, Tuple, cast

import pytest
from core import making

from slotcore import checks, codes, signatures
from slotcore import product as products
from slotcore import target as targets
from slotcore import trust_record as trusts

KEYS = making.three()
DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "design" / "releases.md"


def signed(**changes: object) -> bytes:
    """The published form of a changed body, signed by two of three."""
    return making.published(making.body(**changes), KEYS[:2])


GOOD = signed()


def refusal(facts: checks.Facts) -> Tuple[str, str]:
    """The refusal of facts that must be refused."""
    found = checks.check(facts)
    assert isinstance(found, codes.Refusal), found
    return found.code, found.text


def accepted(facts: checks.Facts) -> checks.Verified:
    """The release of facts that must be accepted."""
    found = checks.check(facts)
    assert isinstance(found, checks.Verified), found
    return found


def test_a_good_release_is_taken() -> None:
    """With the artifact to fetch and who signed."""
    found = accepted(making.facts(GOOD))
    assert (found.manifest.version, found.manifest.sequence) == ("1.1.0", 5)
    assert (found.artifact.name, found.artifact.sha256, found.artifact.size) == (
        "toy_1.1.0_linux_amd64",
        making.SHA256,
        12,
    )
    assert set(found.signers) == set(making.pins(0, 1))


def test_a_digest_has_all_hexadecimal_digits() -> None:
    """As the manifest lists it."""
    digest = "0123456789abcdef" * 4
    published = signed(artifacts=[making.artifact_fields(sha256=digest)])
    assert accepted(making.facts(published, target=making.target(published, sha256=digest))).artifact.sha256 == digest


def with_policy(**changes: object) -> products.Policy:
    """The default policy, changed."""
    return products.Policy()._replace(**changes)  # type: ignore[arg-type]


PERMIT = trusts.Allowed("0123456789abcdef", "1.1.0", 5)


def trusting(
    expires_at: int = making.EXPIRES, issued_at: int = making.ISSUED, withdrawn: Tuple[trusts.Withdrawn, ...] = ()
) -> trusts.Trust:
    """A record of trust with a key set of the usual pins."""
    keys_in_use = trusts.Keys(7, issued_at, expires_at, making.pins(), 2, "0" * 64)
    return trusts.Trust(3, keys_in_use, withdrawn)


WITHDRAWN = tuple(trusts.Withdrawn(version, 5, "loses mail", 9) for version in ("1.1.0", "1.2.0"))
ROWS: List[Tuple[str, checks.Facts, str]] = [
    (
        "updates-disabled",
        making.facts(GOOD, policy=with_policy(enabled=False)),
        "updates of toy are disabled on this host ([update] enabled = false)",
    ),
    (
        "channel-not-allowed",
        making.facts(GOOD, target=making.target(GOOD, channel="beta")),
        "channel beta is asked for; this host takes stable",
    ),
    (
        "below-min-version",
        making.facts(GOOD, policy=with_policy(min_version="1.1.1")),
        "toy 1.1.0 is older than 1.1.1, the oldest that this host takes ([update] min_version)",
    ),
    (
        "other-major",
        making.facts(GOOD, policy=with_policy(same_major=True), running_version="0.9.0"),
        "toy 1.1.0 is of another major version than the running 0.9.0 ([update] same_major)",
    ),
    (
        "other-major",
        making.facts(GOOD, policy=with_policy(same_major=True), running_version=None),
        "toy 1.1.0 is of another major version than the running one, which nobody knows ([update] same_major)",
    ),
    (
        "too-far-back",
        making.facts(GOOD, running_version="1.3.0"),
        "toy 1.1.0 is further back than this host goes from the running 1.3.0: 1 minor version ([update] rollback_grace)",
    ),
    (
        "too-far-back",
        making.facts(GOOD, running_version="2.0.0", policy=with_policy(rollback_grace=100)),
        "toy 1.1.0 is further back than this host goes from the running 2.0.0: 100 minor versions ([update] rollback_grace)",
    ),
    (
        "not-a-release",
        making.facts(GOOD, target=making.target(GOOD, version="1.1")),
        '"1.1" is not a release version, such as 1.2.0',
    ),
    (
        "failed-before",
        making.facts(GOOD, failed={"1.1.0": ("crash-loop", "it kept exiting")}),
        "toy 1.1.0 failed here: it kept exiting; running 1.0.0",
    ),
    (
        "failed-before",
        making.facts(GOOD, failed={"1.1.0": ("operator", "it smells")}),
        "toy 1.1.0 failed here: it smells; running 1.0.0",
    ),
    (
        "failed-before",
        making.facts(GOOD, failed={"1.1.0": ("deadline-passed", "nobody confirmed it")}, running_version=None),
        "toy 1.1.0 failed here: nobody confirmed it; running an unknown version",
    ),
    (
        "failed-before",
        making.facts(GOOD, failed={"1.1.0": ("smoke-test-failed", "it printed nothing")}),
        "toy 1.1.0 did not start; running 1.0.0 (it printed nothing)",
    ),
    (
        "failed-before",
        making.facts(GOOD, failed={"1.1.0": ("did-not-start", "why")}, running_version=None),
        "toy 1.1.0 did not start; running an unknown version (why)",
    ),
    (
        "bad-digest",
        making.facts(GOOD, target=making.target(GOOD, sha256="ab" * 31)),
        "the release sha256 must be 32 bytes",
    ),
    (
        "bad-digest",
        making.facts(GOOD, target=making.target(GOOD, sha256="ab " * 21 + "a")),
        "the release sha256 must be 32 bytes",
    ),
    (
        "no-pins",
        making.facts(GOOD, pins=()),
        "no release keys are pinned ([update] release_pins): toy takes no binary on the control plane's word",
    ),
    (
        "keys-expired",
        making.facts(GOOD, trust=trusting(expires_at=making.NOW)),
        "the key set 7 of this host expired at 2026-01-02T00:00:00Z; no release is taken before the next key set",
    ),
    ("no-manifest", making.facts(GOOD, target=making.target(b"")), "no signed release manifest"),
    (
        "bad-manifest",
        making.facts(b"{}"),
        "the release manifest is malformed: the whole has no manifest, no signatures",
    ),
    (
        "bad-manifest",
        making.facts(GOOD, target=making.target(b"")._replace(signature="\ud800")),
        "the release manifest is malformed: the document is not plain JSON: byte 0: not UTF-8",
    ),
    (
        "too-few-signatures",
        making.facts(making.published(making.body(), KEYS[:1])),
        "the release manifest has 1 of the 2 signatures by pinned keys that it needs",
    ),
    (
        "not-canonical",
        making.facts(making.published(b" " + making.body(), KEYS)),
        "the release manifest is not canonical JSON: byte 0: found ' ', the canonical form has '{'",
    ),
    ("wrong-product", making.facts(signed(product="tool")), "the manifest releases tool, not toy"),
    (
        "wrong-product",
        making.facts(GOOD, target=making.target(GOOD, product="tool")),
        "the target is for tool, not toy",
    ),
    (
        "wrong-version",
        making.facts(GOOD, target=making.target(GOOD, version="1.2.0")),
        "the manifest releases toy 1.1.0, not 1.2.0",
    ),
    (
        "wrong-version",
        making.facts(GOOD, target=making.target(GOOD, version="1.1.0+other")),
        "the manifest releases toy 1.1.0, not 1.1.0+other",
    ),
    (
        "not-permitted",
        making.facts(GOOD, floor=6, permit=PERMIT._replace(version="1.0.9")),
        "the downgrade permit 0123456789abcdef is for 1.0.9, sequence 5, not for 1.1.0, sequence 5",
    ),
    (
        "not-permitted",
        making.facts(GOOD, permit=PERMIT._replace(sequence=4)),
        "the downgrade permit 0123456789abcdef is for 1.1.0, sequence 4, not for 1.1.0, sequence 5",
    ),
    (
        "below-floor",
        making.facts(GOOD, floor=7, permit=PERMIT, least_floor=6),
        "release sequence 5 is older than 6, the configured floor, which no permit passes ([update] release_sequence)",
    ),
    (
        "below-floor",
        making.facts(GOOD, floor=6),
        "release sequence 5 is older than 6, which this node ran or was installed at (rollback)",
    ),
    (
        "older-than-running",
        making.facts(GOOD, floor=0, running_version="1.2.0"),
        "toy 1.1.0 is older than the running 1.2.0 (rollback)",
    ),
    ("expired", making.facts(GOOD, now_s=making.EXPIRES), "the release manifest expired at 2027-01-01T00:00:00Z"),
    (
        "no-artifact",
        making.facts(GOOD, target=making.target(GOOD, sha256="cd" * 32)),
        "the manifest lists no toy_1.1.0_linux_amd64 with the release sha256",
    ),
    (
        "wrong-kind",
        making.facts(signed(artifacts=[making.artifact_fields(kind="tar.gz")])),
        "the artifact toy_1.1.0_linux_amd64 is of kind tar.gz; the slots of toy take binary",
    ),
    (
        "wrong-kind",
        making.facts(signed(artifacts=[making.artifact_fields(variant="rockchip")])),
        "the artifact toy_1.1.0_linux_amd64 is of kind binary, variant rockchip; the slots of toy take binary",
    ),
    (
        "wrong-kind",
        making.facts(GOOD, kinds=("tar.gz",), variant="rockchip"),
        "the artifact toy_1.1.0_linux_amd64 is of kind binary; the slots of toy take tar.gz, variant rockchip",
    ),
    (
        "artifact-too-large",
        making.facts(signed(artifacts=[making.artifact_fields(size=536870913)])),
        "the binary is 536870913 bytes; at most 536870912 are taken",
    ),
    (
        "withdrawn",
        making.facts(GOOD, trust=trusting(withdrawn=WITHDRAWN)),
        "toy 1.1.0, sequence 5, was withdrawn: loses mail",
    ),
    (
        "channel-not-allowed",
        making.facts(signed(channel="beta")),
        "the manifest is on channel beta; this host takes stable",
    ),
    (
        "wrong-channel",
        making.facts(
            GOOD, target=making.target(GOOD, channel="beta"), policy=with_policy(allowed_channels=("stable", "beta"))
        ),
        "the manifest is on channel stable, asked for is beta",
    ),
    (
        "sequence-not-newer",
        making.facts(GOOD, floor=5, policy=with_policy(strict_sequence=True)),
        "release sequence 5 is not above the floor 5 ([update] strict_sequence)",
    ),
    (
        "below-min-from",
        making.facts(signed(minFrom="1.0.1")),
        "toy 1.1.0 takes over from 1.0.1 or later, not from 1.0.0: go to a release in between first",
    ),
    (
        "below-min-from",
        making.facts(signed(minFrom="1.0.0"), running_version=None),
        "toy 1.1.0 takes over from 1.0.0 or later, not from an unknown version: go to a release in between first",
    ),
]


@pytest.mark.parametrize(("code", "facts", "text"), ROWS, ids=["%d-%s" % (n, row[0]) for n, row in enumerate(ROWS)])
def test_each_row_has_its_code_and_sentence(code: str, facts: checks.Facts, text: str) -> None:
    """One fault at a time."""
    found = refusal(facts)
    assert found[0] == code
    assert found[1] == text or found[1].startswith(text + " (")
    assert code in codes.CODES


def test_every_row_is_among_them() -> None:
    """No row without a test of its sentence."""
    assert {row[0] for row in ROWS} == set(checks.CHECKS)


class Fault(NamedTuple):
    """What makes one row object, and which parts of the input it needs for itself."""

    code: str
    body: Dict[str, object]
    facts: Dict[str, object]
    target: Dict[str, str]
    policy: Dict[str, object] = {}  # noqa: RUF012  # a tuple's default, never changed


# Faults that can be had together with every later one, in the order in which they must be found.
FAULTS = [
    Fault("updates-disabled", {}, {}, {}, {"enabled": False}),
    Fault("channel-not-allowed", {}, {}, {"channel": "edge"}),
    Fault("below-min-version", {}, {}, {}, {"min_version": "1.2.1"}),
    Fault("other-major", {}, {"running_version": "4.0.0"}, {}, {"same_major": True}),
    Fault("too-far-back", {}, {"running_version": "4.0.0"}, {}),
    Fault("failed-before", {}, {"failed": {"1.1.0": ("crash-loop", "why"), "1.2.0": ("crash-loop", "why")}}, {}),
    Fault("bad-digest", {}, {}, {"sha256": "ab"}),
    Fault("no-pins", {}, {"pins": ()}, {}),
    Fault("keys-expired", {}, {"trust": trusting(making.NOW, withdrawn=WITHDRAWN)}, {}),
    Fault("no-manifest", {}, {}, {"signature": ""}),
    Fault("bad-manifest", {"extra": 1}, {}, {}),
    Fault("too-few-signatures", {}, {"threshold": 3}, {}),
    Fault("not-canonical", {}, {}, {}),
    Fault("wrong-product", {"product": "tool"}, {}, {}),
    Fault("wrong-version", {}, {}, {"version": "1.2.0"}),
    Fault("not-permitted", {}, {"permit": PERMIT._replace(version="9.9.9")}, {}),
    Fault("below-floor", {}, {"floor": 6}, {}),
    Fault("expired", {}, {"now_s": making.EXPIRES + 1}, {}),
    Fault("no-artifact", {}, {"platform": "linux-riscv64"}, {}),
    Fault("wrong-kind", {}, {"kinds": ("tar.gz",)}, {}),
    Fault("artifact-too-large", {}, {"max_bytes": 11}, {}),
    Fault("withdrawn", {}, {"trust": trusting(making.EXPIRES + 9, withdrawn=WITHDRAWN)}, {}),
    Fault("channel-not-allowed", {"channel": "beta"}, {}, {}),
    Fault("wrong-channel", {}, {}, {"channel": "lts"}, {"allowed_channels": ("stable", "lts")}),
    Fault("sequence-not-newer", {}, {"floor": 5}, {}, {"strict_sequence": True}),
    Fault("below-min-from", {"minFrom": "1.1.0"}, {}, {}),
]
NEED_NO_MANIFEST = (
    "updates-disabled",
    "channel-not-allowed",
    "below-min-version",
    "other-major",
    "too-far-back",
    "not-a-release",
    "failed-before",
    "bad-digest",
    "no-pins",
    "keys-expired",
)


def faulty(*faults: Fault) -> checks.Facts:
    """Facts with all these faults at once."""
    body: Dict[str, object] = {}
    facts: Dict[str, object] = {}
    target: Dict[str, str] = {}
    policy: Dict[str, object] = {}
    for one in reversed(faults):  # where two want one value, the earlier has it
        body.update(one.body)
        facts.update(one.facts)
        target.update(one.target)
        policy.update(one.policy)
    facts["policy"] = with_policy(**policy)
    spread = any(one.code == "not-canonical" for one in faults)
    data = json.dumps(making.body_fields(**body)).encode() if spread else making.body(**body)
    published = making.published(data, KEYS[:2])
    return making.facts(published, target=making.target(published)._replace(**target), **facts)


@pytest.mark.parametrize(("early", "late"), list(itertools.combinations(FAULTS, 2)), ids=lambda one: one.code)
def test_of_two_faults_the_earlier_row_speaks(early: Fault, late: Fault) -> None:
    """Every pair of rows that can object together."""
    assert refusal(faulty(late))[0] == late.code
    assert refusal(faulty(early, late))[0] == early.code


def test_with_every_fault_the_first_row_speaks() -> None:
    """And a target that is no release comes before all but the policy."""
    facts = faulty(*FAULTS)
    assert refusal(facts)[0] == "updates-disabled"
    facts = faulty(*FAULTS[5:])._replace(policy=products.Policy(), running_version=None)
    assert refusal(facts._replace(target=facts.target._replace(channel=None)))[0] == "failed-before"
    assert refusal(facts._replace(target=facts.target._replace(channel=None, version="x")))[0] == "not-a-release"


def test_the_rows_with_two_conditions_keep_their_place() -> None:
    """Older than running needs a floor of 0, so it cannot stand in the pairs above."""
    facts = making.facts(GOOD, floor=0, running_version="1.2.0", now_s=making.EXPIRES)
    assert refusal(facts)[0] == "older-than-running"
    other = making.target(GOOD, version="1.2.0")
    assert refusal(facts._replace(target=other))[0] == "wrong-version"


def test_the_order_is_the_documents_table() -> None:
    """The numbered rows of docs/design/releases.md are CHECKS."""
    rows = re.findall(r"^\| (\d+) \| .* \| `([a-z-]+)` \|", DOCUMENT.read_text(), re.MULTILINE)
    assert [int(number) for number, _code in rows] == list(range(1, len(rows) + 1))
    assert tuple(code for _number, code in rows) == checks.CHECKS


def test_rows_before_the_manifest_read_none() -> None:
    """A host that holds the bytes already asks only these, and they refuse as in the whole."""
    for code, facts, text in ROWS:
        found = checks.check_before_manifest(facts)
        early = code in NEED_NO_MANIFEST and not text.startswith("the manifest is on")
        assert found == ((code, text) if early else None)
        if found is not None and code in NEED_NO_MANIFEST[:5]:
            assert checks.check_policy(facts) == found
        else:
            assert checks.check_policy(facts) is None
    assert tuple(row.code for row in checks.TARGET_CHECKS) == NEED_NO_MANIFEST
    order = len(NEED_NO_MANIFEST) + 1
    assert checks.CHECKS[order : order + 3] == signatures.ORDER


def test_the_policy_can_be_asked_alone() -> None:
    """For a program that setup installs: the rows of what is asked for, and none of the others."""
    alone = [row.code for row in checks.POLICY_CHECKS]
    for code, facts, text in ROWS:
        early = code in alone and not text.startswith("the manifest is on")
        assert checks.check_policy(facts) == ((code, text) if early else None)


def test_a_permit_opens_the_rows_of_the_floor() -> None:
    """And the answer says whether it was needed, so that one that was not is not used up."""
    permitted = accepted(making.facts(GOOD, floor=6, permit=PERMIT))
    assert permitted.permit == PERMIT
    assert accepted(making.facts(GOOD, floor=0, running_version="1.2.0", permit=PERMIT)).permit == PERMIT
    assert accepted(making.facts(GOOD, floor=6, permit=PERMIT, least_floor=5)).permit == PERMIT
    assert accepted(making.facts(GOOD, floor=5, permit=PERMIT)).permit is None
    assert accepted(making.facts(GOOD, floor=5)).permit is None


def test_a_permit_opens_no_other_row() -> None:
    """Whatever else is wrong with the release is wrong with it all the same."""
    for code, facts, _text in ROWS:
        if code not in ("below-floor", "older-than-running", "not-permitted"):
            assert refusal(facts._replace(permit=PERMIT, floor=6))[0] == code


def test_N11_the_key_sets_issue_is_one_of_the_times() -> None:
    """A clock that fell back behind it brings no manifest back to life."""
    facts = making.facts(GOOD, now_s=0, trust=trusting(issued_at=making.EXPIRES, expires_at=making.EXPIRES + 1))
    assert refusal(facts)[0] == "expired"
    assert refusal(making.facts(GOOD, now_s=0, trust=trusting(making.EXPIRES, making.EXPIRES)))[0] == "keys-expired"
    assert accepted(making.facts(GOOD, now_s=0, trust=trusting())).permit is None


def test_a_withdrawal_is_of_one_version_with_one_sequence() -> None:
    """The same version made again under a higher sequence is another release."""
    for version, sequence in (("1.1.0", 4), ("1.1.1", 5)):
        withdrawn = (trusts.Withdrawn(version, sequence, "why", 9),)
        assert accepted(making.facts(GOOD, trust=trusting(withdrawn=withdrawn)))


def test_a_release_at_the_floor_is_taken() -> None:
    """The floor itself may run again."""
    assert accepted(making.facts(GOOD, floor=5)).manifest.sequence == 5


@pytest.mark.parametrize("running", [None, "", "a build of mine", "1.1.0", "1.0.0", "1.1.0-rc.1"])
def test_without_a_floor_only_an_older_version_is_refused(running: str) -> None:
    """What runs may be unknown or no version at all: then nothing is older."""
    accepted(making.facts(GOOD, floor=0, running_version=running))


def test_with_a_floor_the_sequence_alone_decides() -> None:
    """A lower version with a higher sequence is how a bad release is undone."""
    accepted(making.facts(GOOD, floor=4, running_version="1.2.0"))


def test_a_manifest_counts_up_to_its_last_second() -> None:
    """The expiry itself is too late."""
    accepted(making.facts(GOOD, now_s=making.EXPIRES - 1))


@pytest.mark.parametrize("size", [1, 536870912])
def test_the_largest_artifact_is_taken(size: int) -> None:
    """512 MiB exactly."""
    assert accepted(making.facts(signed(artifacts=[making.artifact_fields(size=size)]))).artifact.size == size


def test_the_artifact_is_found_by_name_platform_and_digest() -> None:
    """All three must be the host's; an entry that differs in one is another file."""
    others = [
        making.artifact_fields(name="toy_1.1.0_linux_arm64", platform="linux-arm64"),
        making.artifact_fields(name="toy", sha256="cd" * 32),
    ]
    found = accepted(making.facts(signed(artifacts=[*others, making.artifact_fields()])))
    assert found.artifact.name == "toy_1.1.0_linux_amd64"
    for change in ({"name": "toy"}, {"platform": "linux-arm64"}, {"sha256": "cd" * 32}):
        facts = making.facts(
            signed(artifacts=[*others, making.artifact_fields(**cast("Dict[str, object]", change))][2:])
        )
        assert refusal(facts)[0] == "no-artifact"


def test_N7_a_build_for_another_platform_is_refused_before_any_download() -> None:
    """A host of an architecture without a build gets a terminal refusal that names the file it looked for."""
    facts = making.facts(GOOD, platform="linux-armv7")
    assert refusal(facts) == ("no-artifact", "the manifest lists no toy_1.1.0_linux_armv7 with the release sha256")


def test_N9_an_expired_manifest_is_told_by_its_time() -> None:
    """The field's answer to `expired` is the time, so that a wrong clock is seen at once."""
    assert refusal(making.facts(GOOD, now_s=2**40))[1].startswith(
        "the release manifest expired at 2027-01-01T00:00:00Z: this host's clock says 9999-12-31T23:59:59Z"
    )


def test_N11_a_clock_far_in_the_past_makes_no_difference_to_a_valid_manifest() -> None:
    """Before `issuedAt` a manifest is good already: hosts without a clock start in 1970."""
    accepted(making.facts(GOOD, now_s=0))


def test_a_stepping_stone_is_enough() -> None:
    """`minFrom` itself, anything later, and a release without it."""
    accepted(making.facts(signed(minFrom="1.0.0")))
    accepted(making.facts(signed(minFrom="1.0.0-rc.1")))
    accepted(making.facts(GOOD, running_version=None))


def test_another_channel_can_be_taken() -> None:
    """A host that takes more than stable lists them in its refusal too."""
    accepted(making.facts(signed(channel="beta"), policy=with_policy(allowed_channels=("stable", "beta"))))
    text = refusal(making.facts(signed(channel="edge"), policy=with_policy(allowed_channels=("stable", "beta"))))[1]
    assert text == "the manifest is on channel edge; this host takes stable, beta"


def target_bytes(change: Callable[[Dict[str, object]], object]) -> bytes:
    """A target file, changed."""
    fields: Dict[str, object] = dict(making.target(GOOD)._asdict())
    del fields["channel"], fields["variant"]
    change(fields)
    return json.dumps(fields).encode()


def test_a_target_is_read() -> None:
    """As written by the control side, the digest in capitals too."""
    assert checks.parse_target(target_bytes(dict)) == making.target(GOOD)
    capitals = target_bytes(lambda fields: fields.update(sha256="AB" * 32))
    assert checks.parse_target(capitals) == making.target(GOOD)
    asked = target_bytes(lambda fields: fields.update(channel="beta"))
    assert checks.parse_target(asked) == making.target(GOOD, channel="beta")
    asked = target_bytes(lambda fields: fields.update(variant="full"))
    assert checks.parse_target(asked) == making.target(GOOD, variant="full")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "the target is malformed: the target is not plain JSON: byte 0: expected a value, found the end"),
        (b"[]", "the target is malformed: the whole must be an object, not []"),
        (target_bytes(lambda fields: fields.pop("url")), "the target is malformed: the whole has no url"),
        (
            target_bytes(lambda fields: fields.update(sequence=1)),
            "the target is malformed: the whole has the unknown field 'sequence'",
        ),
        (
            target_bytes(lambda fields: fields.update(version=1)),
            "the target is malformed: version must be a string, not 1",
        ),
        (
            target_bytes(lambda fields: fields.update(channel="a b")),
            "the target is malformed: channel must be 1 to 32 letters, digits, _, / and -, not 'a b'",
        ),
        (
            target_bytes(lambda fields: fields.update(channel="")),
            "the target is malformed: channel must be 1 to 32 letters, digits, _, / and -, not ''",
        ),
        (
            target_bytes(lambda fields: fields.update(channel=None)),
            "the target is malformed: channel must be a string, not None",
        ),
        (
            target_bytes(lambda fields: fields.update(variant="Full")),
            "the target is malformed: variant must be 1 to 32 of a-z, 0-9, _ and -, not 'Full'",
        ),
        (
            target_bytes(lambda fields: fields.update(signature={})),
            "the target is malformed: signature must be a string, not {}",
        ),
        (b" " * (checks.MAX_TARGET + 1), "the target is malformed: the target is not plain JSON: 6291457 bytes;"),
    ],
)
def test_a_malformed_target_is_refused(data: bytes, text: str) -> None:
    """By its own code, naming the field."""
    with pytest.raises(codes.Refused) as error:
        checks.parse_target(data)
    assert error.value.code == codes.BAD_TARGET
    assert error.value.text.startswith(text)


@pytest.mark.parametrize(
    ("name", "platform"),
    [
        ("toy_1.1.0_linux_amd64", "linux-amd64"),
        ("toy_1.1.0_linux_arm64", "linux-arm64"),
        ("a_b_linux_amd64", "linux-amd64"),
        ("toy", None),
        ("linux_amd64", None),
        ("toy_1.1.0_linux_amd64.tar.gz", None),
    ],
)
def test_a_file_name_tells_its_platform(name: str, platform: str) -> None:
    """By its last two parts."""
    assert targets.platform_of(name) == platform


TREES = {"kinds": ("binary", "tar.gz")}
ROCKCHIP = {"name": "toy_1.1.0_linux_amd64_rockchip", "variant": "rockchip", "sha256": "cd" * 32}


def chosen(facts: Mapping[str, object], *artifacts: Mapping[str, object]) -> Tuple[str, str]:
    """The artifact that a host takes, and its kind; or the refusal's code."""
    data = signed(artifacts=[making.artifact_fields(**one) for one in artifacts])
    target = making.target(data, **({"sha256": "cd" * 32} if facts.get("variant") else {}))
    found = checks.check(making.facts(data, **{"target": target, **facts}))
    return (found.code, found.text) if isinstance(found, codes.Refusal) else (found.artifact.name, found.artifact.kind)


def test_a_tree_takes_an_archive_or_a_program() -> None:
    """Products.md, section 3: layout `versions` takes both kinds, `ab` a program alone."""
    assert chosen(TREES, {"kind": "tar.gz"}) == ("toy_1.1.0_linux_amd64", "tar.gz")
    assert chosen(TREES, {}) == ("toy_1.1.0_linux_amd64", "binary")
    assert chosen({}, {"kind": "tar.gz"})[0] == "wrong-kind"
    code, text = chosen({**TREES, "variant": "full"}, {"sha256": "cd" * 32})
    assert code == "wrong-kind"
    assert text.endswith("the slots of toy take binary or tar.gz, variant full")


def test_a_host_takes_its_variant_and_no_other() -> None:
    """By the name with the variant after it, or by the field alone under the name of old; there is no default."""
    both: Tuple[Mapping[str, object], ...] = ({}, ROCKCHIP)
    assert chosen({"variant": "rockchip"}, *both) == ("toy_1.1.0_linux_amd64_rockchip", "binary")
    assert chosen({}, *both) == ("toy_1.1.0_linux_amd64", "binary")
    assert chosen({"variant": "rockchip"}, {**ROCKCHIP, "name": "toy_1.1.0_linux_amd64"})[1] == "binary"
    assert chosen({"variant": "full"}, ROCKCHIP)[0] == "wrong-kind"
    assert chosen({"variant": "rockchip"}, {**ROCKCHIP, "name": "toy_1.1.0_linux_amd64_full"})[0] == "no-artifact"
    assert "lists no toy_1.1.0_linux_amd64_full with" in chosen({"variant": "full"}, {})[1]


def test_of_equal_bytes_the_hosts_own_variant_counts() -> None:
    """Two variants may be one file: neither name nor order decides then."""
    full = {**ROCKCHIP, "name": "toy_1.1.0_linux_amd64_full", "variant": "full"}
    for two in ((full, ROCKCHIP), (ROCKCHIP, full)):
        assert chosen({"variant": "rockchip"}, *two) == ("toy_1.1.0_linux_amd64_rockchip", "binary")


def test_artifact_names_are_made_from_the_platform() -> None:
    """One dash of the platform becomes an underscore; a variant comes after it."""
    assert checks.artifact_name("toy", "1.0.0", "linux-amd64", "full") == "toy_1.0.0_linux_amd64_full"
    assert checks.artifact_name("toy", "1.0.0", "linux-amd64", "") == "toy_1.0.0_linux_amd64"
    assert checks.artifact_name("my-toy", "1.0.0-rc.1", "linux-amd64") == "my-toy_1.0.0-rc.1_linux_amd64"


NOT_STARTED = ("did-not-start", "no-interpreter", "not-executable", "smoke-test-failed", "wrong-machine")


@pytest.mark.parametrize("code", [code for code, info in codes.CODES.items() if info.kind != codes.RETRYABLE])
def test_of_which_failures_it_is_said_that_the_release_did_not_start(code: str) -> None:
    """Of those that say so; one that kept exiting may have run each time, and is told as it was recorded."""
    found = checks.check(making.facts(GOOD, failed={"1.1.0": (code, "why")}))
    assert isinstance(found, codes.Refusal)
    assert found.code == "failed-before"
    said = "did not start; running 1.0.0 (why)" if code in NOT_STARTED else "failed here: why; running 1.0.0"
    assert found.text == "toy 1.1.0 " + said
