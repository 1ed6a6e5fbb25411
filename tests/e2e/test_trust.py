# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys that change, releases that are withdrawn, and a downgrade that is permitted, on a real host (trust.md)."""

from __future__ import annotations

import json
import time
from typing import Sequence

import pytest
from support import node as nodes
from support import releases, signing

from slotcore import keys

pytestmark = pytest.mark.host


@pytest.fixture(scope="session")
def newer(tmp_path_factory: pytest.TempPathFactory) -> releases.Workshop:
    """Who signs after a rotation: other people, other keys."""
    return releases.Workshop(tmp_path_factory.mktemp("newer"))


def private(shop: releases.Workshop) -> list[keys.PrivateKey]:
    """The private keys of a workshop."""
    return [keys.load_private(key.path.read_bytes()) for key in shop.keys]


def apply(node: nodes.Node, *documents: bytes) -> nodes.Answer:
    """`slotward trust apply` of these documents."""
    paths = []
    for number, data in enumerate(documents):
        paths.append(f"{nodes.BOX}/document-{number}.json")
        node.host.write(paths[-1], data)
    return node.slotward("trust", "apply", *paths)


def applied(node: nodes.Node, *documents: bytes) -> nodes.Answer:
    """The same, which must succeed."""
    answer = apply(node, *documents)
    assert (answer.exit, answer.code) == (0, "ok"), answer
    return answer


def rotated(node: nodes.Node, newer: releases.Workshop, lasts_s: int = 30 * signing.DAY_S) -> None:
    """The keys of `newer` take the place of the host's."""
    applied(node, signing.key_set(1, private(newer), private(node.shop)[:2], lasts_s=lasts_s))


def refused(answer: nodes.Answer) -> str:
    """The code of an answer that must be a refusal."""
    assert (answer.exit, answer.json["changed"]) == (3, False), answer
    return answer.code


def events(node: nodes.Node) -> list[str]:
    """What the audit log says, in short."""
    return [line["event"] for line in node.slotward("audit").json["lines"]]


def machine_id(node: nodes.Node) -> str:
    """By which name a permit knows the host."""
    return node.host.read("/etc/machine-id").strip()


def permit_file(node: nodes.Node, data: bytes) -> str:
    """Push a permit; its path on the host."""
    node.host.write(f"{nodes.BOX}/permit.json", data)
    return f"{nodes.BOX}/permit.json"


def test_N17_keys_are_rotated_by_one_document_and_the_next_release_comes_by_the_new_ones(
    node: nodes.Node, newer: releases.Workshop, v110: releases.Release
) -> None:
    """No configuration was touched; what the old keys sign is worth nothing, also after a reboot."""
    rotated(node, newer)
    assert refused(node.begin(v110)) == "too-few-signatures"
    node.host.reboot()
    node.waits(lambda: node.running() == "1.0.0", 20, "the daemon runs")
    assert node.update()["trust"]["source"] == "key-set"
    answer = node.upgraded(newer.release("1.1.0", 2))
    assert answer.json["floor"] == 2
    assert [event for event in events(node) if event in ("keys-changed", "refused", "confirmed")] == [
        "keys-changed",
        "refused",
        "confirmed",
    ]
    state, message, _run = node.doctor()["release keys"]
    assert (state, message) == ("ok", "3 of key set 1 count, 2 must have signed")


def test_revoked_keys_do_not_come_back_by_the_other_slot(
    node: nodes.Node, newer: releases.Workshop, v110: releases.Release
) -> None:
    """Bytes that are in the free slot already must prove themselves again, by the keys in force."""
    trial = node.on_trial(v110)
    assert node.slotward("rollback", "--id", trial).exit == 0
    node.goes_back(["operator"], 20)
    node.slotward("update", "--clear-failed")
    prepared = node.slotward("prepare", "--target", node.target(v110))
    assert prepared.json["reuse"], prepared
    rotated(node, newer)
    assert "b" not in json.loads(node.host.read(f"{nodes.SLOTS}/slots.json"))["slots"]
    assert refused(node.slotward("prepare", "--target", node.target(v110))) == "too-few-signatures"


def test_keys_do_not_change_under_a_trial(node: nodes.Node, newer: releases.Workshop, v110: releases.Release) -> None:
    """The trial ends first; then the same command goes through."""
    trial = node.on_trial(v110)
    document = signing.key_set(1, private(newer), private(node.shop)[:2])
    answer = apply(node, document)
    assert (answer.exit, answer.code) == (4, "trial-pending"), answer
    assert node.confirm(trial).exit == 0
    applied(node, document)
    assert node.update()["trust"]["sequence"] == 1


def test_N16_N12_keys_that_ran_out_stop_no_daemon_and_sign_the_next_set(
    node: nodes.Node, newer: releases.Workshop
) -> None:
    """Updates are refused, everything says why, the daemon starts and runs; one document mends it."""
    rotated(node, newer, lasts_s=4)
    time.sleep(5)
    release = newer.release("1.1.0", 2)
    assert refused(node.begin(release)) == "keys-expired"
    node.sh(f"systemctl restart {nodes.UNIT}")
    node.waits(lambda: node.running() == "1.0.0", 15, "the daemon runs")
    assert node.doctor()["expiry"][0] == "fail"
    applied(node, signing.key_set(2, private(newer), private(newer)[:2]))
    assert node.doctor()["expiry"][0] == "ok"
    node.upgraded(release)


def test_a_withdrawn_release_is_refused_and_told_where_it_runs(
    node: nodes.Node, v110: releases.Release, v120: releases.Release
) -> None:
    """Before it is installed, and after: a host that runs it stays as it is and says so."""
    applied(node, signing.withdrawal("1.1.0", 2, private(node.shop)[:2]))
    assert refused(node.begin(v110)) == "withdrawn"
    node.upgraded(v120)
    applied(node, signing.withdrawal("1.2.0", 3, private(node.shop)[:2]))
    assert node.update()["trust"]["withdrawn"]
    assert node.doctor()["withdrawn"][0] == "warn"
    assert node.running() == "1.2.0"


@pytest.mark.parametrize("how", ["gone", "torn", "older"])
def test_I3_a_lost_record_of_trust_is_no_licence_for_the_configurations_pins(
    node: nodes.Node, newer: releases.Workshop, v110: releases.Release, how: str
) -> None:
    """Updates are refused, the daemon runs on, a reboot changes nothing."""
    record = f"{nodes.SLOTS}/trust.json"
    rotated(node, newer)
    older = node.host.read(record)
    applied(node, signing.withdrawal("0.9.0", 1, private(newer)[:2]))
    script = {
        "gone": f"rm {record} {record}.copy",
        "torn": f"echo '{{' >{record}; echo nothing >{record}.copy",
        "older": f"echo '{older.strip()}' >{record}; (echo sha256 $(sha256sum <{record} | cut -c-64); cat {record}) >{record}.copy",
    }[how]
    node.damaged = True
    node.sh(script)
    for _boot in range(2):
        answer = node.begin(v110)
        assert (answer.exit, answer.code) == (5, "record-broken"), answer
        state = node.update()
        assert (state["trust"]["source"], state["code"]) == ("unknown", "record-broken")
        assert node.doctor()["release keys"][0] == "fail"
        assert node.running() == "1.0.0"
        node.host.reboot()
        node.waits(lambda: node.running() == "1.0.0", 20, "the daemon runs")


@pytest.fixture
def at_120(node: nodes.Node, v120: releases.Release) -> nodes.Node:
    """A host that was brought to 1.2.0: its floor is 3."""
    node.upgraded(v120)
    return node


def downgrade(node: nodes.Node, release: releases.Release, data: bytes, *flags: str) -> nodes.Answer:
    """Ask for a release below the floor, with a permit."""
    return node.begin(release, "--permit", permit_file(node, data), *flags)


def test_a_permit_takes_a_host_below_its_floor_once(
    at_120: nodes.Node, v110: releases.Release, v120: releases.Release
) -> None:
    """The floor becomes the release's own; the host may go up again, and the same permit is worth nothing then."""
    node = at_120
    signers = private(node.shop)[:2]
    assert refused(node.begin(v110)) == "below-floor"
    permit = signing.permit("1.1.0", 2, [machine_id(node)], signers)
    asked = ["prepare", "--target", node.target(v110), "--src", node.put(v110.artifact)]
    shown = node.slotward(*asked, "--permit", permit_file(node, permit))
    assert (shown.exit, shown.json.get("permit")) == (0, "0123456789abcdef"), shown
    assert node.slotward("trust").json["permits"] == []
    begun = downgrade(node, v110, permit)
    assert begun.json["state"] == "trial", begun
    assert node.slotward("trust").json["allowed"]["version"] == "1.1.0"
    assert node.update()["floor"] == 3
    confirmed = node.confirm(str(begun.json["trial"]["id"]))
    assert (confirmed.json["state"], confirmed.json["floor"]) == ("confirmed", 2), confirmed
    assert node.running() == "1.1.0"
    shown = node.slotward("trust")
    assert (shown.json["allowed"], len(shown.json["permits"])) == (None, 1)
    assert events(node)[-4:] == ["accepted", "permitted", "swapped", "confirmed"]
    node.upgraded(v120)
    assert refused(downgrade(node, v110, permit)) == "permit-used"


def test_a_permit_is_used_up_by_a_trial_that_went_back(at_120: nodes.Node, v110: releases.Release) -> None:
    """Whatever came of it; the floor stays, and a new permit is another one."""
    node = at_120
    signers, here = private(node.shop)[:2], [machine_id(node)]
    permit = signing.permit("1.1.0", 2, here, signers)
    begun = downgrade(node, v110, permit)
    assert begun.json["state"] == "trial", begun
    node.host.cut()
    node.host.boot()
    node.waits(lambda: node.running() == "1.1.0", 20, "the trial goes on after a power cut")
    assert node.slotward("rollback").exit == 0
    node.goes_back(["operator"], 20, to="1.2.0")
    assert node.update()["floor"] == 3
    assert node.slotward("trust").json["allowed"] is None
    node.slotward("update", "--clear-failed")
    assert refused(downgrade(node, v110, permit)) == "permit-used"
    again = signing.permit("1.1.0", 2, here, signers, permit_id="f" * 32)
    assert node.confirm(str(downgrade(node, v110, again).json["trial"]["id"])).json["floor"] == 2


def test_a_confirmation_that_was_cut_is_finished_by_the_permits_rule(
    at_120: nodes.Node, v110: releases.Release
) -> None:
    """The claim was won and the power went: the next start sets the floor to the permitted release."""
    node = at_120
    begun = downgrade(node, v110, signing.permit("1.1.0", 2, [machine_id(node)], private(node.shop)[:2]))
    assert begun.json["state"] == "trial", begun
    node.sh(f"mv {nodes.SLOTS}/trial {nodes.SLOTS}/trial.confirm")
    node.host.cut()
    node.host.boot()
    node.waits(lambda: node.update()["last"]["state"] == "confirmed", 20, "the confirmation is finished")
    state = node.update()
    assert (state["floor"], state["version"], state["slots"]["good"]) == (2, "1.1.0", state["slots"]["current"])
    assert node.slotward("trust").json["allowed"] is None


def test_permits_that_are_not_for_this(at_120: nodes.Node, v110: releases.Release) -> None:
    """Another host, too late, another release, too few signatures, below what is configured: refused, and nothing used."""
    node = at_120
    signers, here = private(node.shop), [machine_id(node)]

    def asked(data: bytes) -> str:
        return refused(downgrade(node, v110, data))

    def permit(version: str = "1.1.0", sequence: int = 2, hosts: Sequence[str] = (), lasts_s: int = 60) -> bytes:
        return signing.permit(version, sequence, hosts or here, signers[:2], lasts_s=lasts_s)

    assert asked(permit(hosts=["0" * 32])) == "not-permitted"
    assert asked(permit(version="1.0.0")) == "not-permitted"
    assert asked(permit(sequence=1)) == "not-permitted"
    assert asked(permit(lasts_s=0)) == "expired"
    assert asked(signing.permit("1.1.0", 2, here, signers[:1])) == "too-few-signatures"
    assert asked(signing.permit("1.1.0", 2, here, signers[:2], product="other")) == "wrong-product"
    assert asked(signing.withdrawal("1.1.0", 2, signers[:2])) == "bad-document"
    node.configure(release_sequence=3)
    assert asked(permit()) == "below-floor"
    node.configure(release_sequence=2)
    assert node.slotward("trust").json["permits"] == []
    begun = downgrade(node, v110, permit())
    assert node.confirm(str(begun.json["trial"]["id"])).json["floor"] == 2


def test_setup_installs_by_the_keys_in_force(
    node: nodes.Node, newer: releases.Workshop, v100: releases.Release
) -> None:
    """A host whose program was damaged is mended by a release of today's signers, and not by one of those before."""
    rotated(node, newer)
    node.sh(f"systemctl stop {nodes.UNIT}; rm {nodes.SLOTS}/a; echo broken >{nodes.SLOTS}/a; chmod 755 {nodes.SLOTS}/a")
    program, manifest = node.put(v100.artifact, 0o755), node.put(v100.manifest, name="old.manifest.json")
    assert refused(node.command([program, "setup", "--manifest", manifest])) == "too-few-signatures"
    node.setup(newer.release("1.0.0", 1))
    node.enable()
    node.waits(lambda: node.running() == "1.0.0", 15, "the daemon runs")
