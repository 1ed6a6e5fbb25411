# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward trust` as a process on a real directory: rotation, revocation, withdrawals, and what is refused."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import pytest
from support import signing

from slotcore import audit, codes, ops, plans, recording, records
from slotcore import trust_record as trusts
from slotward import audit as noted
from slotward import audit_file, cli, own
from slotward import host as agent_host
from slotward.host import read_state

PROGRAM = "import sys; from slotward import cli; sys.exit(cli.main(sys.argv[1:]))"
OLD = [signing.key() for _number in range(3)]
NEW = [signing.key() for _number in range(3)]
NEWEST = [signing.key() for _number in range(2)]
FIRST = signing.key_set(1, NEW, OLD[:2])
SECOND = signing.key_set(2, NEWEST, NEW[:2])
AWAY = signing.withdrawal("1.0.0", 1, OLD[:2])
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="whom a host trusts is root's")


class Ran(NamedTuple):
    """The end of one command."""

    status: int
    json: Dict[str, Any]
    err: str


class Host:
    """A slots directory at rest: 1.0.0 in slot a, 1.1.0 verified in slot b."""

    def __init__(self, top: pathlib.Path) -> None:
        self.top, self.slots = top, top / "slots"
        self.slots.mkdir()
        for name in ("a", "b"):
            (self.slots / name).write_bytes(b"abc")
        for name in ("current", "good"):
            (self.slots / name).symlink_to("a")
        slots = {
            slot: records.SlotRecord(version, number, "0" * 64, 3)
            for number, (slot, version) in enumerate((("a", "1.0.0"), ("b", "1.1.0")), 1)
        }
        self.write(recording.SLOTS, records.render_slots(slots))
        self.write(recording.UPDATE, records.render_update(records.Update(floor=1)))
        self.configure(",".join(one.public.pin for one in OLD))
        (top / "calls").touch()
        (top / "show").write_text("\n".join(["ActiveState=active\n"] * 3))
        (top / "say-").write_text("systemd 252\n")
        self.environment = {
            **os.environ,
            "PYTHONPATH": ":".join(path for path in sys.path if path),
            "FAKE_SYSTEMD": str(top),
            "PATH": f"{pathlib.Path(__file__).parent / 'fakes'}:{os.environ['PATH']}",
        }

    def configure(self, pins: str, threshold: int = 2, more: str = "") -> None:
        """Write the configuration."""
        text = f'data_dir = "{self.top}/data"\n[update]\nslots_dir = "{self.slots}"\nentrypoint = "{self.top}/probe"\n'
        (self.top / "config.toml").write_text(f'{text}release_pins = "{pins}"\nrelease_threshold = {threshold}\n{more}')

    def write(self, name: str, data: bytes) -> None:
        """A record and its copy, whatever the umask."""
        for path, text in ((self.slots / name, data), (self.slots / (name + recording.COPY), recording.sealed(data))):
            path.write_bytes(text)
            path.chmod(0o644)

    def run(self, *words: str) -> Ran:
        """One command."""
        config = str(self.top / "config.toml")
        argv = [sys.executable, "-W", "error", "-c", PROGRAM, words[0], "--config", config, "--json", *words[1:]]
        done = subprocess.run(
            argv, cwd=self.top, env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stdout, done.stderr
        return Ran(done.returncode, json.loads(done.stdout), done.stderr)

    def said(self, *words: str) -> str:
        """What one command says to people."""
        argv = [sys.executable, "-W", "error", "-c", PROGRAM, words[0], "--config", "config.toml", *words[1:]]
        done = subprocess.run(
            argv, cwd=self.top, env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout

    def apply(self, *documents: bytes, check: bool = False) -> Ran:
        """`slotward trust apply` of these documents, in this order."""
        names = []
        for number, data in enumerate(documents):
            names.append(f"doc-{number}.json")
            (self.top / names[-1]).write_bytes(data)
        return self.run("trust", "apply", *names, *(["--check"] if check else []))

    def applied(self, *documents: bytes) -> Ran:
        """The same, which must succeed."""
        ran = self.apply(*documents)
        assert ran.status == 0, ran
        return ran

    def refused(self, *documents: bytes) -> Ran:
        """The same, which must be refused and change nothing but the log."""
        before = self.kept()
        ran = self.apply(*documents)
        assert (ran.status, ran.json["changed"]) == (3, False), ran
        assert self.kept() == before
        return ran

    def kept(self) -> Dict[str, bytes]:
        """The records and their copies, and whatever else lies there but the log and the lock."""
        found = {path.name: path for path in self.slots.iterdir() if path.name not in ("audit.log", "lock")}
        return {name: path.read_bytes() for name, path in found.items()}

    def record(self) -> trusts.Trust:
        """`trust.json`, as it is read."""
        return trusts.parse((self.slots / "trust.json").read_bytes(), "trust.json")

    def update(self) -> records.Update:
        """`update.json`, as it is read."""
        return records.parse_update((self.slots / "update.json").read_bytes(), "update.json")

    def events(self) -> List[audit.Event]:
        """What the log says."""
        return [audit.parse(line).event for line in (self.slots / "audit.log").read_bytes().splitlines()]


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    """A host of its own."""
    return Host(tmp_path)


def test_without_a_key_set_the_configuration_is_trusted(host: Host) -> None:
    """And nothing is written by looking."""
    before = host.kept()
    ran = host.run("trust")
    assert ran.status == 0
    assert ran.json["trust"]["source"] == "configuration"
    assert ran.json["trust"]["pins"] == [one.public.pin for one in OLD]
    assert (ran.json["generation"], ran.json["withdrawals"], ran.json["permits"], ran.json["allowed"]) == (
        0,
        [],
        [],
        None,
    )
    assert ran.json["trust"]["machine_id"] == pathlib.Path("/etc/machine-id").read_text().strip()
    assert host.kept() == before


def test_N17_one_document_rotates_the_keys_of_a_host(host: Host) -> None:
    """Record, copy, generation, log; the free slot's record goes with the keys that let its bytes in."""
    ran = host.applied(FIRST)
    assert (ran.json["changed"], ran.json["code"]) == (True, "ok")
    assert [(one["file"], one["changed"], one["event"]) for one in ran.json["applied"]] == [
        ("doc-0.json", True, "keys-changed")
    ]
    trust = ran.json["trust"]
    assert (trust["source"], trust["sequence"], trust["threshold"]) == ("key-set", 1, 2)
    assert trust["pins"] == [one.public.pin for one in NEW]
    assert host.record().generation == host.update().trust == 1
    assert recording.unsealed((host.slots / "trust.json.copy").read_bytes()) == (host.slots / "trust.json").read_bytes()
    assert list(records.parse_slots((host.slots / "slots.json").read_bytes(), "x")) == ["a"]
    assert [(one.event, one.sequence) for one in host.events()] == [("keys-changed", 1)]
    assert host.update().floor == 1


def test_I9_the_same_again_changes_nothing_and_says_so(host: Host) -> None:
    """Neither a record nor the log."""
    host.applied(FIRST, AWAY_BY_NEW)
    before, events = host.kept(), host.events()
    ran = host.applied(FIRST, AWAY_BY_NEW)
    assert not ran.json["changed"]
    assert [one["text"] for one in ran.json["applied"]] == [
        "key set 1 is in use already",
        "slotward 1.1.0, sequence 2 is withdrawn already",
    ]
    assert (host.kept(), host.events()) == (before, events)


AWAY_BY_NEW = signing.withdrawal("1.1.0", 2, NEW[:2])


def test_N17_a_chain_takes_hosts_from_wherever_they_are(host: Host) -> None:
    """One that was away for both, one that has the first, one that has all."""
    for changed in ([True, True], [False, False]):
        ran = host.applied(FIRST, SECOND)
        assert [one["changed"] for one in ran.json["applied"]] == changed
    assert host.run("trust").json["trust"]["sequence"] == 2
    assert [one.sequence for one in host.events()] == [1, 2]


def test_revocation_counts_at_once(host: Host) -> None:
    """What the old keys sign from then on is worth nothing, though the configuration still pins them."""
    host.applied(FIRST)
    ran = host.refused(AWAY)
    assert ran.json["code"] == codes.TOO_FEW_SIGNATURES
    assert ran.json["message"].startswith(
        "doc-0.json: the withdrawal has 0 of the 2 signatures by pinned keys that it needs (of slotward 1.0.0; "
    )
    assert "its key is not pinned" in ran.json["message"]


REFUSED: Dict[str, Callable[[], bytes]] = {
    "an older one again: keys-not-newer": lambda: FIRST,
    "another one of the same sequence: keys-not-newer": lambda: signing.key_set(2, OLD, NEWEST),
    "by too few of the keys in force: too-few-signatures": lambda: signing.key_set(3, OLD, NEWEST[:1]),
    "by the new keys alone: too-few-signatures": lambda: signing.key_set(3, OLD, OLD),
    "by revoked keys: too-few-signatures": lambda: signing.key_set(3, OLD, NEW),
    "for another product: wrong-product": lambda: signing.key_set(3, OLD, NEWEST, product="other"),
    "expired: expired": lambda: signing.key_set(3, OLD, NEWEST, lasts_s=60, issued_at=1_700_000_000),
    "a permit: bad-document": lambda: signing.permit("1.0.0", 1, ["0" * 32], NEWEST),
    "no document: bad-document": lambda: b"<html>",
    "an empty file: bad-document": lambda: b"",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_key_set_that_is_refused_changes_nothing(host: Host, name: str) -> None:
    """By the code that names the attack; and the log tells of it."""
    host.applied(FIRST, SECOND)
    ran = host.refused(REFUSED[name]())
    assert ran.json["code"] == name.rpartition(": ")[2]
    assert (host.events()[-1].event, host.events()[-1].code) == ("refused", ran.json["code"])
    assert host.run("trust").json["trust"]["sequence"] == 2


def test_one_refusal_refuses_all(host: Host) -> None:
    """The good ones in front of it too."""
    host.refused(FIRST, SECOND, FIRST)
    assert "trust.json" not in host.kept()
    assert host.run("trust").json["trust"]["source"] == "configuration"


def test_N16_an_expired_key_set_still_signs_the_next(host: Host) -> None:
    """A host whose keys ran out takes the chain; the expired one alone is refused."""
    lapsed = signing.key_set(1, NEW, OLD, lasts_s=60, issued_at=1_700_000_000)
    assert host.refused(lapsed).json["code"] == codes.EXPIRED
    host.applied(lapsed, SECOND)
    assert host.run("trust").json["trust"]["sequence"] == 2


def test_N16_a_host_warns_before_its_keys_expire(host: Host) -> None:
    """In `trust`, `update` and `doctor`, louder as it comes nearer; an expired set is no reason to stop anything (N12)."""
    host.applied(signing.key_set(1, NEW, OLD, lasts_s=20 * signing.DAY_S))
    for command in ("trust", "update"):
        (warned,) = host.run(command).json["warnings"]
        assert (warned["level"], warned["what"]) == ("warning", "keys")
    keys = host.record().keys
    assert keys is not None
    host.write("trust.json", trusts.render(host.record()._replace(keys=keys._replace(expires_at=1_700_000_000))))
    ran = host.run("update")
    assert ran.status == 0
    assert [one["level"] for one in ran.json["warnings"]] == ["critical"]
    assert ran.json["warnings"][0]["text"].startswith("key set 1 expired at 2023-11-14T22:13:20Z: no release is taken")
    found = [one for one in host.run("doctor").json["checks"] if one["name"] == "expiry"]
    assert [(one["state"], one["run"].startswith("slotward trust apply FILE")) for one in found] == [("fail", True)]
    host.applied(SECOND)
    assert host.run("update").json["warnings"] == []


def test_check_says_what_would_change_and_changes_nothing(host: Host) -> None:
    """Not even the log; a refusal is the same."""
    before = host.kept()
    ran = host.apply(FIRST, SECOND, check=True)
    assert (ran.status, ran.json["changed"], ran.json["trust"]["source"]) == (0, True, "configuration")
    assert host.apply(SECOND, check=True).json["code"] == codes.TOO_FEW_SIGNATURES
    assert host.kept() == before
    assert not (host.slots / "audit.log").exists()


def test_a_withdrawn_release_that_runs_is_told_everywhere(host: Host) -> None:
    """The host stays as it is."""
    host.applied(AWAY)
    ran = host.run("update")
    assert (ran.json["trust"]["withdrawn"], ran.json["state"], ran.status) == (True, "idle", 0)
    assert host.run("trust").json["withdrawals"][0]["why"] == "loses mail"
    found = [one for one in host.run("doctor").json["checks"] if one["name"] == "withdrawn"]
    assert [(one["state"], one["message"]) for one in found] == [
        ("warn", "1.0.0, which runs here, was withdrawn (slotward trust says why)")
    ]
    assert [(one.event, one.to_version) for one in host.events()] == [("withdrawn", "1.0.0")]
    assert sorted(records.parse_slots((host.slots / "slots.json").read_bytes(), "x")) == ["a", "b"]


def test_a_lost_record_of_trust_is_restored_from_its_copy(host: Host) -> None:
    """By whatever settles."""
    host.applied(FIRST)
    held = (host.slots / "trust.json").read_bytes()
    (host.slots / "trust.json").unlink()
    assert host.run("update").json["trust"]["sequence"] == 1
    assert (host.slots / "trust.json").read_bytes() == held


def broken_trust(host: Host) -> Dict[str, Callable[[], object]]:
    """Ways to lose the record of trust so that no copy helps; the host has taken two key sets."""
    record, copy = host.slots / "trust.json", host.slots / "trust.json.copy"
    older = trusts.render(host.record()._replace(generation=1))

    def put(data: bytes) -> None:
        host.write("trust.json", data)

    def gone() -> None:
        record.unlink()
        copy.unlink()

    return {
        "both are gone": gone,
        "both are torn": lambda: (record.write_bytes(b'{"spec":1'), copy.write_bytes(b"sha256 ")),
        "both are an older one": lambda: put(older),
        "both are of another spec": lambda: put(older.replace(b'"spec":1', b'"spec":2')),
    }


@pytest.mark.parametrize(
    "name", ["both are gone", "both are torn", "both are an older one", "both are of another spec"]
)
def test_I3_a_lost_record_never_brings_the_configurations_pins_back(host: Host, name: str) -> None:
    """Updates are refused, everything says so, and a document by the configuration's keys is refused like any other."""
    host.applied(FIRST, SECOND)
    host.applied(signing.withdrawal("0.9.0", 1, NEWEST))
    broken_trust(host)[name]()
    ran = host.run("update")
    assert (ran.status, ran.json["code"]) == (0, codes.RECORD_BROKEN)
    assert ran.json["broken"]["file"] == str(host.slots / "trust.json")
    assert (ran.json["trust"]["source"], ran.json["trust"]["pins"], ran.json["pins"]) == ("unknown", [], 0)
    shown = host.run("trust")
    assert (shown.status, shown.json["code"]) == (5, codes.RECORD_BROKEN)
    keys = [one for one in host.run("doctor").json["checks"] if one["name"] == "release keys"]
    assert [one["state"] for one in keys] == ["fail"]
    assert host.apply(AWAY).status in (3, 5)
    assert host.run("update").json["trust"]["source"] == "unknown"


@pytest.mark.parametrize("name", ["both are gone", "both are torn", "both are an older one"])
def test_a_lost_record_is_begun_anew_by_the_whole_chain_and_by_nothing_less(host: Host, name: str) -> None:
    """Repair says so and writes none; a part of the chain, which would bring a revoked key back, is refused."""
    host.applied(FIRST, SECOND)
    host.applied(signing.withdrawal("0.9.0", 1, NEWEST))
    before = host.update().trust
    broken_trust(host)[name]()
    repaired = host.run("update", "--repair")
    assert (repaired.status, repaired.json["code"]) == (5, codes.RECORD_BROKEN)
    assert "up to key set 2 at least" in " ".join(repaired.json["left"])
    for part in ([FIRST], [SECOND], [AWAY]):
        assert host.apply(*part).json["code"] in (codes.KEYS_NOT_NEWER, codes.TOO_FEW_SIGNATURES)
        assert host.apply(*part, check=True).status == 3
    assert host.apply(FIRST, SECOND, check=True).status == 0
    assert host.run("update").json["code"] == codes.RECORD_BROKEN, "a check changes nothing"
    assert host.applied(FIRST, SECOND).json["changed"]
    record = host.record()
    assert record.keys is not None
    assert (record.keys.sequence, [entry.version for entry in record.withdrawn]) == (2, ["0.9.0"])
    assert host.update().trust == record.generation > before
    slots = records.parse_slots((host.slots / recording.SLOTS).read_bytes(), "slots.json")
    assert "b" not in slots, "what was staged must prove itself again"
    assert host.run("update").json["trust"]["source"] == "key-set"
    assert host.run("update", "--repair").json["changed"] is False


def test_a_lost_record_of_a_host_that_never_took_a_key_set_is_repaired(host: Host) -> None:
    """The log begins with the install and knows of no key set: the configuration's pins are those, and the withdrawal stays."""
    audit_file.append(str(host.slots), audit.Event(audit.INSTALLED, "slotward", 9, to_version="1.0.0", sequence=1))
    host.applied(AWAY)
    for name in ("trust.json", "trust.json.copy"):
        (host.slots / name).write_bytes(b"torn")
    assert host.run("update").json["trust"]["source"] == "unknown"
    repaired = host.run("update", "--repair")
    assert (repaired.status, repaired.json["code"], repaired.json["changed"]) == (0, "ok", True), repaired
    assert [entry.version for entry in host.record().withdrawn] == ["1.0.0"]
    shown = host.run("update").json
    assert (shown["trust"]["source"], shown["broken"], host.update().trust) == ("configuration", None, 2)
    assert host.run("update", "--repair").json["changed"] is False


def test_trust_is_roots(host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Everybody may look where the records can be read; nobody else changes it."""
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    assert cli.main(["trust", "--config", str(host.top / "config.toml"), "--json", "apply", "x"]) == 3
    assert json.loads(capsys.readouterr().out)["code"] == codes.NOT_ROOT


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (("give",), "'give' is not apply"),
        (("apply",), "no FILE to apply is given"),
        (("apply", "--check"), "no FILE to apply is given"),
    ],
)
def test_a_wrong_command_line(host: Host, words: List[str], missing: str) -> None:
    """Says what is missing and ends with the usage, which argparse does not double."""
    ran = host.run("trust", *words)
    assert (ran.status, ran.json["code"]) == (2, codes.USAGE)
    assert ran.json["message"] == (f"{missing}; usage: slotward trust [apply FILE ...]")
    helped = host.said("trust", "--help").split("\n\n")[0]
    assert "".join(helped.split()).endswith("[apply[--check][--server-timeTIME]FILE...]")


def test_what_must_be_verified_again_is_told(host: Host) -> None:
    """Before and after a key went away; nothing is to be told when nothing is in the other slot any more."""
    ran = host.apply(FIRST, check=True)
    assert (ran.json["changed"], ran.json["verify_again"]) == (True, "1.1.0")
    (host.top / "doc.json").write_bytes(FIRST)
    said = host.said("trust", "apply", "doc.json", "--check").splitlines()
    assert "the other slot (1.1.0) would have to be fetched and verified again" in said
    said = host.said("trust", "apply", "doc.json").splitlines()
    assert said[1] == "the other slot (1.1.0) must be fetched and verified again"
    assert host.applied(FIRST).json["verify_again"] == ""
    assert host.applied(SECOND).json["verify_again"] == ""


def test_a_withdrawal_is_told_once(host: Host) -> None:
    """With what this host runs."""
    (host.top / "doc.json").write_bytes(AWAY)
    said = host.said("trust", "apply", "doc.json")
    assert said.count("sequence 1") == 1, said
    assert "this host runs 1.0.0" in said.splitlines()
    assert host.said("trust").count("sequence 1") == 1
    (host.top / "doc.json").write_bytes(signing.withdrawal("0.9.0", 7, OLD[:2]))
    assert host.said("trust", "apply", "doc.json").count("sequence 7") == 1


def test_the_way_out_for_lost_key_sets_is_their_chain(host: Host) -> None:
    """In update, doctor and the audit log; by the log, or by what was set aside where the log is gone."""
    host.applied(FIRST, SECOND)
    held = (host.slots / "trust.json").read_bytes()
    for name in ("trust.json", "trust.json.copy"):
        (host.slots / name).write_bytes(b"torn")
    chain = "slotward trust apply FILE ... (every key set from the first on)"
    assert host.run("update").json["broken"]["run"] == chain
    assert f"to mend it: {chain}" in host.said("update").splitlines()
    checks = {one["name"]: one["run"] for one in host.run("doctor").json["checks"]}
    assert (checks["records"], checks["release keys"]) == (chain, chain)
    assert host.events()[-1].why.endswith(f"run `{chain}`")
    (host.slots / "audit.log").unlink()
    assert host.run("update").json["broken"]["run"] == "slotward update --repair"
    (aside,) = host.slots.glob("trust.json.broken-*")
    aside.write_bytes(held)
    assert host.run("update").json["broken"]["run"] == chain


@pytest.mark.parametrize("name", ["trust.json", "update.json"])
@pytest.mark.parametrize("data", [b"torn", None])
def test_keys_are_lost_only_where_their_own_record_is(host: Host, name: str, data: Optional[bytes]) -> None:
    """A copy that proves itself, or another record that is broken: nothing of key sets, and the command that mends that."""
    if name == "trust.json":
        host.applied(FIRST)
    path, copy = host.slots / name, host.slots / f"{name}.copy"
    whole = path.read_bytes()
    path.unlink() if data is None else path.write_bytes(data)
    checks = {one["name"]: one for one in host.run("doctor").json["checks"]}
    for one in (checks["records"], checks["release keys"]):
        assert (one["state"], one["run"], one["entry"]) == ("warn", "slotward settle", "record-broken"), one
    assert str(path) in checks["release keys"]["message"]
    if name == "update.json":
        copy.write_bytes(b"torn")
        checks = {one["name"]: one for one in host.run("doctor").json["checks"]}
        assert {checks[one]["run"] for one in ("records", "release keys")} == {"slotward update --repair"}
        assert (checks["records"]["state"], checks["release keys"]["state"]) == ("fail", "warn")
        return
    assert host.run("settle").status == 0
    assert path.read_bytes() == whole


def test_a_configuration_that_somebody_may_not_read_is_no_problem_of_the_configuration(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said to run it as root; updates are not refused for it."""
    config = host.top / "config.toml"

    def denied(path: str) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    monkeypatch.setattr(agent_host, "open_named", denied)
    assert cli.main(["update", "--config", str(config)]) == 3
    said = "".join(capsys.readouterr())
    assert said == f"refused (not-root): cannot reach {config}: Permission denied; run it as root\n"


@pytest.mark.parametrize(("uid", "status", "code"), [(0, 4, "os-error"), (65534, 3, "not-root")])
def test_what_root_may_not_write_is_no_final_no(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], uid: int, status: int, code: str
) -> None:
    """An immutable file, a security module, a disk: root is not told to be root, and may try again."""

    def denied(_args: object) -> None:
        raise PermissionError(13, "Permission denied", "/opt/x")

    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(cli, "_run", denied)
    assert cli.main(["settle", "--config", str(host.top / "config.toml"), "--json"]) == status
    answer = json.loads(capsys.readouterr().out)
    assert answer["code"] == code
    assert "/opt/x" in answer["message"]


def test_a_document_that_cannot_be_read(host: Host) -> None:
    """Missing, or no plain file; nobody waits for it."""
    os.mkfifo(host.top / "fifo")
    for name, said in (("gone", "cannot read gone: No such file"), ("fifo", "cannot read fifo: it is no plain file")):
        ran = host.run("trust", "apply", name)
        assert (ran.status, ran.json["code"]) == (3, codes.CANNOT_READ)
        assert ran.json["message"].startswith(said)


def test_a_bad_configuration_decides_nothing(host: Host) -> None:
    """Whom it pins cannot be known."""
    host.configure("sha256/nonsense")
    assert host.apply(FIRST).json["code"] == codes.BAD_CONFIG


def test_without_any_pins_nobody_can_say_whom_to_trust(host: Host) -> None:
    """As the refusal of a release has it."""
    (host.top / "config.toml").write_text(f'[update]\nslots_dir = "{host.slots}"\nentrypoint = "{host.top}/probe"\n')
    assert host.refused(FIRST).json["code"] == codes.NO_PINS


def test_a_host_may_be_told_before_anything_is_installed(host: Host) -> None:
    """The record is demanded from then on, whatever comes into the slots; lost, it is missed there too."""
    for name in ("current", "good", "a", "b", "slots.json", "update.json", "slots.json.copy", "update.json.copy"):
        (host.slots / name).unlink()
    host.applied(FIRST)
    assert host.run("update").json["trust"]["sequence"] == 1
    product = own.load(str(host.top / "config.toml")).product
    record = records.SlotRecord("1.0.0", 1, "0" * 64, 3)
    adopted = plans.plan_adopt(product, read_state(product), record)
    written = [op.data for op in adopted if isinstance(op, ops.Write) and op.path.endswith("update.json.tmp")]
    assert [records.parse_update(data, "x").trust for data in written] == [1]
    for name in ("trust.json", "trust.json.copy"):
        (host.slots / name).unlink()
    assert host.run("update").json["code"] == codes.RECORD_BROKEN


def test_N16_the_clock_of_whoever_asks_counts_where_it_is_later(host: Host) -> None:
    """`--server-time`, as for an upgrade: it can only make the check stricter."""
    (host.top / "doc.json").write_bytes(FIRST)
    ran = host.run("trust", "apply", "doc.json", "--server-time", "2099-01-01T00:00:00Z")
    assert ran.json["code"] == codes.EXPIRED
    ran = host.run("trust", "apply", "--server-time", "1999-01-01T00:00:00Z", "doc.json")
    assert ran.json["changed"], ran


def test_a_cut_between_the_two_records_is_caught_up_with_by_the_next_command(host: Host) -> None:
    """So that the record that is there is demanded from then on."""
    host.applied(FIRST)
    host.write(recording.UPDATE, records.render_update(host.update()._replace(trust=0)))
    assert not host.applied(FIRST).json["changed"]
    assert host.update().trust == 1


def test_I3_what_was_withdrawn_outlives_the_loss_of_both_records(host: Host) -> None:
    """The log alone knows that there was a record of it: the repair writes it anew, and updates are refused until then."""
    product = own.load(str(host.top / "config.toml")).product
    noted.note(product, audit.INSTALLED, to_version="1.0.0", sequence=1, sha256="0" * 64)
    host.applied(AWAY)
    for name in (recording.UPDATE, recording.TRUST):
        for path in (host.slots / name, host.slots / (name + recording.COPY)):
            path.unlink()
    ran = host.run("update", "--repair")
    assert (ran.status, ran.json["floor"]) == (0, 1), ran
    assert [(entry.version, entry.sequence) for entry in host.record().withdrawn] == [("1.0.0", 1)]
    assert host.run("trust").json["trust"]["source"] == "configuration"
    assert host.run("update", "--repair").json["changed"] is False


def record_findings(host: Host) -> List[Tuple[str, str, str]]:
    """What doctor finds of the records: state, message, what to run."""
    checks = host.run("doctor").json["checks"]
    return [(one["state"], one["message"], one["run"]) for one in checks if one["name"] == "records"]


def test_I3_doctor_tells_older_records_by_the_log(host: Host) -> None:
    """A set of older records with their copies is sound, so it is believed; but the log knows what was in force since."""
    host.applied(FIRST)
    before = host.kept()
    host.applied(SECOND)
    product = own.load(str(host.top / "config.toml")).product
    noted.note(product, audit.CONFIRMED, to_version="1.1.0", sequence=2, trial_id="00112233445566aa")
    host.write(recording.UPDATE, records.render_update(host.update()._replace(floor=2)))
    assert [found[0] for found in record_findings(host)] == ["ok"]
    for name, data in before.items():
        if name.partition(".copy")[0] in (recording.TRUST, recording.UPDATE):
            (host.slots / name).write_bytes(data)
    assert host.run("trust").json["trust"]["sequence"] == 1, "what this is about: the revoked keys count again"
    (floor, keys) = record_findings(host)
    assert (floor[0], keys[0]) == ("fail", "fail")
    assert floor[1].startswith("the release floor is 1, and the audit log tells of 2")
    assert "set [update] release_sequence = 2" in floor[2]
    assert keys[1].startswith("key set 1 is in use, and the audit log tells of key set 2")
    host.applied(SECOND)
    assert [found[0] for found in record_findings(host)] == ["fail"], "the floor is still behind"
    host.configure(",".join(one.public.pin for one in OLD), more="release_sequence = 2\n")
    assert [found[0] for found in record_findings(host)] == ["ok"]
