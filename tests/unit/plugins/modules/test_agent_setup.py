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
