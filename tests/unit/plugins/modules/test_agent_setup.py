# SPDX-License-Identifier: GPL-3.0-or-later
"""Which program sets a host up, and its bytes checked on the way."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
from typing import Any, Dict

import pytest

ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
PLANNED = (
    b"if '--planned' in sys.argv: "
    b"open(os.environ['LOG'] + '.planned', 'w').write(open(sys.argv[sys.argv.index('--planned') + 1]).read())"
)
DONE = {"changes": [{"path": "/x", "what": "create"}], "unit_changed": True, "restart_needed": False}


@pytest.fixture
def delivered(agent: Any, say: Any) -> Dict[str, Any]:
    """The stand-in as a program that was pushed, and the target that it belongs to."""
    data = pathlib.Path(agent.path).read_bytes()
    artifact = {
        "name": "slotward_1.0.0_linux_" + ARCH,
        "url": "",
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": len(data),
    }
    return {"target": say.target(artifacts={"linux-" + ARCH: artifact}), "src": agent.path}


@pytest.fixture
def elsewhere(tmp_path: pathlib.Path) -> str:
    """An agent's path with nothing there."""
    return str(tmp_path / "bin" / "slotward")


@pytest.fixture
def log(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A log of calls that survives the temporary copy of the program."""
    path = tmp_path / "log"
    monkeypatch.setenv("LOG", str(path))
    return path


def program(path: pathlib.Path, answer: str, log: pathlib.Path) -> bytes:
    """A program that says what it was called with, from where and in which mode it lay there."""
    text = (
        "#!/bin/sh\nimport os, sys\n"
        "own = os.stat(sys.argv[0]); above = os.stat(os.path.dirname(sys.argv[0]))\n"
        "open(%r, 'a').write('%%o %%o %%s\\n' %% (own.st_mode & 0o777, above.st_mode & 0o777, ' '.join(sys.argv[1:])))\n"
        "print(%r)\n" % (str(log), answer)
    )
    path.write_text(text)
    return text.encode()


def test_a_delivered_program_is_copied_to_where_only_root_can_write(
    run_module: Any, say: Any, tmp_path: pathlib.Path, elsewhere: str, log: pathlib.Path
) -> None:
    """It sets itself up from the checked copy, with its manifest, read by the host's own interpreter, and nothing is left."""
    source = tmp_path / "pushed"
    data = program(source, json.dumps(say.answer("idle", changed=True, **DONE)), log)
    artifact = {
        "name": "slotward_1.0.0_linux_" + ARCH,
        "url": "",
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": len(data),
    }
    target = say.target(artifacts={"linux-" + ARCH: artifact})
    result = run_module("agent_setup", executable=elsewhere, target=target, src=str(source), adopt=True)
    assert (result["changed"], result["unit_changed"], result["changes"]) == (True, True, DONE["changes"])
    mode, above, words = log.read_text().strip().split(" ", 2)
    assert (mode, above) == ("600", "700")
    assert words.startswith("setup --adopt --from /")
    copy = words.split("--from ")[1].split(" ")[0]
    assert copy.endswith("/slotward_1.0.0_linux_" + ARCH)
    assert "--manifest %s/manifest.json" % os.path.dirname(copy) in words
    assert not os.path.exists(os.path.dirname(copy))
    log.unlink()
    result = run_module("agent_setup", check=True, executable=elsewhere, target=target, src=str(source), verify=False)
    assert result["changed"] is True
    assert " --check " in log.read_text()
    assert "--manifest" not in log.read_text()
    log.unlink()
    pathlib.Path(elsewhere).parent.mkdir()
    pathlib.Path(elsewhere).write_text("put here by hand")
    run_module("agent_setup", executable=elsewhere, target=target, src=str(source))
    assert "--manifest" not in log.read_text(), "a file that is adopted is of another release"


def test_other_bytes_are_never_run(run_module: Any, delivered: Dict[str, Any], agent: Any, elsewhere: str) -> None:
    """The digest decides, whoever pushed the file."""
    delivered["target"]["artifacts"]["linux-" + ARCH]["sha256"] = "0" * 64
    result = run_module("agent_setup", executable=elsewhere, **delivered)
    assert (result["failed"], result["code"], result["state"]) == (True, "digest-mismatch", "refused")
    assert agent.calls() == []


def test_an_installed_agent_sets_itself_up_again(agent: Any, run_module: Any, say: Any, tmp_path: pathlib.Path) -> None:
    """Nothing is delivered and no other release is installed over it."""
    link = tmp_path / "bin" / "slotward"
    link.parent.mkdir()
    link.symlink_to(agent.path)
    answers = {"changes": [], "unit_changed": False, "restart_needed": False}
    (tmp_path / "bin" / "answers.json").write_text(
        '{"setup": [[0, %s]]}' % str(say.answer("idle", **answers)).replace("'", '"').replace("False", "false")
    )
    result = run_module("agent_setup", executable=str(link), target=say.target(), src="/nonexistent")
    assert (result["changed"], result["changes"]) == (False, [])
    assert '"argv": ["setup", "--json"]' in (tmp_path / "bin" / "calls.jsonl").read_text()


class Slots:
    """An installed agent: the path is a link to `current`, a link to a slot with the stand-in's bytes, which the record has."""

    def __init__(self, directory: pathlib.Path, agent: Any) -> None:
        self.directory = directory / "slots"
        self.directory.mkdir()
        self.slot = self.directory / "a"
        self.slot.write_bytes(pathlib.Path(agent.path).read_bytes())
        self.slot.chmod(0o755)
        (self.directory / "current").symlink_to("a")
        self.link = directory / "slotward-link"
        self.link.symlink_to(self.directory / "current")
        entry = dict.fromkeys(("expires_at", "sequence", "size"), 1)
        sha256 = hashlib.sha256(self.slot.read_bytes()).hexdigest()
        entries = {"a": {**entry, "version": "1.0.0", "sha256": sha256, "channel": "stable"}}
        self.record(json.dumps({"spec": 1, "slots": entries}))

    def record(self, text: str) -> None:
        """The record of what is in which slot."""
        (self.directory / "slots.json").write_text(text)


@pytest.fixture
def slots(tmp_path: pathlib.Path, agent: Any) -> Slots:
    """One."""
    return Slots(tmp_path, agent)


DAMAGES = {
    "no current": lambda slots: (slots.directory / "current").unlink(),
    "no slot": lambda slots: slots.slot.unlink(),
    "one byte more": lambda slots: slots.slot.write_bytes(slots.slot.read_bytes() + b"\n"),
    "emptied": lambda slots: slots.slot.write_bytes(b""),
    "not executable": lambda slots: slots.slot.chmod(0o644),
    "not in the record": lambda slots: slots.record('{"spec": 1, "slots": {}}'),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_agent_is_set_up_by_the_delivered_program_with_its_manifest(
    run_module: Any, say: Any, tmp_path: pathlib.Path, log: pathlib.Path, slots: Slots, damage: Any
) -> None:
    """As by hand: `FILE setup --from FILE --manifest MANIFEST`; what only the controller has is asked for first."""
    damage(slots)
    source = tmp_path / "pushed"
    data = program(source, json.dumps(say.answer("idle", changed=True, **DONE)), log)
    artifact = {"name": "slotward_1.0.0", "url": "", "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    options = {"executable": str(slots.link), "target": say.target(artifacts={"linux-" + ARCH: artifact})}
    asked = run_module("agent_setup", **options)
    assert (asked["failed"], asked["bring_program"], log.exists()) == (True, True, False)
    for check in (True, False):
        result = run_module("agent_setup", check=check, src=str(source), **options)
        assert (result["changed"], result["code"], "bring_program" in result) == (True, "ok", False)
        words = log.read_text().split()[2:]
        copy = words[words.index("--from") + 1]
        assert words[words.index("--manifest") + 1] == os.path.dirname(copy) + "/manifest.json"
        log.unlink()


def test_a_sound_slot_sets_itself_up_and_nothing_is_brought(run_module: Any, say: Any, slots: Slots) -> None:
    """Its bytes are those of its record."""
    (slots.link.parent / "answers.json").write_text(json.dumps({"setup": [[0, say.answer("idle", **DONE)]]}))
    result = run_module("agent_setup", executable=str(slots.link), target=say.target())
    assert (result["code"], "bring_program" in result) == ("ok", False)


def test_broken_records_are_the_installed_program_s_to_tell(run_module: Any, say: Any, slots: Slots) -> None:
    """With the command that mends them; a program that cannot even be started leaves that to the release's own file."""
    slots.record("{")
    told = say.answer("refused", "record-broken", message="slots.json: it is torn")
    (slots.link.parent / "answers.json").write_text(json.dumps({"setup": [[5, told]]}))
    result = run_module("agent_setup", executable=str(slots.link), target=say.target())
    assert (result["failed"], result["code"]) == (True, "record-broken")
    assert result["msg"] == "slots.json: it is torn; to mend it, run on the host: slotward update --repair"
    slots.slot.write_bytes(b"")
    result = run_module("agent_setup", executable=str(slots.link), target=say.target())
    assert (result["failed"], result["code"], result["state"]) == (True, "bad-answer", "failed")
    assert "`FILE update --repair`" in result["msg"]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"delivery": "download"}, "bad-url"),
        ({"src": "/nonexistent/file"}, "cannot-read"),
    ],
)
def test_what_cannot_be_delivered(run_module: Any, say: Any, elsewhere: str, more: Any, code: str) -> None:
    """With a code and no traceback."""
    artifact = {"name": "x", "url": "http://127.0.0.1:9/x", "sha256": "0" * 64, "size": 1}
    result = run_module(
        "agent_setup", executable=elsewhere, target=say.target(artifacts={"linux-" + ARCH: artifact}), **more
    )
    assert (result["failed"], result["code"]) == (True, code)


def test_a_download_that_fails_may_be_tried_again(run_module: Any, say: Any, elsewhere: str) -> None:
    """Nobody listens on that port."""
    artifact = {"name": "x", "url": "http://127.0.0.1:9/x", "sha256": "0" * 64, "size": 1}
    result = run_module(
        "agent_setup",
        executable=elsewhere,
        target=say.target(artifacts={"linux-" + ARCH: artifact}),
        delivery="download",
        allow_http=True,
    )
    assert (result["failed"], result["code"], result["state"]) == (True, "download-failed", "failed")


def test_what_is_planned_is_asked_about_in_check_mode_only(
    run_module: Any, say: Any, tmp_path: pathlib.Path, elsewhere: str, log: pathlib.Path
) -> None:
    """The configuration is handed over as a file that is root's alone; a run that writes goes by the host's own."""
    source = tmp_path / "pushed"
    data = program(source, json.dumps(say.answer("idle", changed=True, mode="helper", user="acct", **DONE)), log)
    source.write_bytes(data.replace(b"import os, sys\n", b"import os, sys\nplanned()\n").replace(b"planned()", PLANNED))
    data = source.read_bytes()
    artifact = {"name": "slotward_1.0.0", "url": "", "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    target = say.target(artifacts={"linux-" + ARCH: artifact})
    options = {"executable": elsewhere, "target": target, "src": str(source), "planned_config": "[helper]\n"}
    result = run_module("agent_setup", check=True, fix_directories=True, **options)
    assert (result["mode"], result["user"], result["changes"]) == ("helper", "acct", DONE["changes"])
    assert (tmp_path / "log.planned").read_text() == "[helper]\n"
    assert " --fix-directories --check --planned " in log.read_text()
    log.unlink()
    run_module("agent_setup", **options)
    assert "--planned" not in log.read_text()
    assert "--fix-directories" not in log.read_text()


def test_a_directory_that_others_may_write_is_told_with_what_to_run(
    agent: Any, run_module: Any, say: Any, tmp_path: pathlib.Path
) -> None:
    """The agent's own words: which directory, and the command."""
    text = "/usr/local/lib may be changed by others: run chmod g-w,o-w /usr/local/lib, or set agent_fix_directories"
    link = tmp_path / "bin" / "slotward"
    link.parent.mkdir()
    link.symlink_to(agent.path)
    answer = say.answer("refused", "directory-unsafe", message=text)
    (link.parent / "answers.json").write_text(json.dumps({"setup": [[3, answer]]}))
    result = run_module("agent_setup", executable=str(link), target=say.target())
    assert (result["failed"], result["code"], result["mode"], result["changes"]) == (True, "directory-unsafe", None, [])
    assert result["msg"] == text
