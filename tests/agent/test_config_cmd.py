# SPDX-License-Identifier: GPL-3.0-or-later
"""`slotward config` as a process, and how a staged release is asked about this host's configuration."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, Dict, List, Optional, Tuple

import pytest

from agent import guarding
from slotcore import codes, config
from slotcore import product as products
from slotward import build_info, effects, own

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = "import sys; from slotward import cli; sys.exit(cli.main(sys.argv[1:]))"
GOOD = '[update]\nrollback_grace = 4\nproxy = "http://user:secret@proxy.example:3128"\n'
BAD = "[update]\nrollback_grace = 400\nsurprise = 1\nadopt =\n"
PROBLEMS = [
    "{path}:4:8: [update] adopt: expected a string in quotes, a decimal integer, true or false, found the end of the line",
    "{path}:2:18: [update] rollback_grace: expected an integer from 0 to 100, found 400",
    "{path}:3:1: [update] surprise: unknown key, expected one of",
]


def run(*arguments: str, text: Optional[bytes] = None) -> Tuple[int, str, str]:
    """The agent's exit status and what it wrote."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}/agent/src:{ROOT}/plugins/module_utils"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, *arguments], env=environment, input=text, capture_output=True, check=False
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def ask(*arguments: str, text: Optional[bytes] = None) -> Tuple[int, Dict[str, Any]]:
    """The agent's exit status and its JSON answer."""
    status, out, errors = run(*arguments, "--json", text=text)
    assert out, errors
    answer: Dict[str, Any] = json.loads(out)
    assert (answer["spec"], answer["changed"]) == (1, False)
    return status, answer


@pytest.fixture
def good(tmp_path: pathlib.Path) -> str:
    """A file without a problem."""
    path = tmp_path / "good.toml"
    path.write_text(GOOD)
    return str(path)


@pytest.fixture
def bad(tmp_path: pathlib.Path) -> str:
    """A file with three."""
    path = tmp_path / "bad.toml"
    path.write_text(BAD)
    return str(path)


@pytest.mark.parametrize("words", [["config", "check", "{}"], ["config", "check", "--config", "{}"]])
def test_a_good_file_is_good(good: str, words: List[str]) -> None:
    """By name, or as the configuration."""
    status, answer = ask(*(word.format(good) for word in words))
    assert (status, answer["code"], answer["problems"]) == (0, "ok", [])
    assert run(*(word.format(good) for word in words)) == (0, f"{good} is good\n", "")
    assert run("config", "check", "-", text=GOOD.encode()) == (0, "standard input is good\n", "")


def test_every_problem_is_told_and_the_exit_status_is_5(bad: str) -> None:
    """Each on a line of its own, and all of them in the answer."""
    status, answer = ask("config", "check", bad)
    assert (status, answer["code"], answer["state"]) == (5, "bad-config", "refused")
    assert len(answer["problems"]) == len(PROBLEMS)
    for found, wanted in zip(answer["problems"], PROBLEMS):
        assert found.startswith(wanted.format(path=bad))
    status, out, errors = run("config", "check", bad)
    assert (status, out, errors.splitlines()) == (5, "", answer["problems"])


def test_i6_a_file_that_others_could_have_written_is_a_problem_of_the_host_s_own(good: str) -> None:
    """I6: `config check` says what the daemon says; a file that is still to be put in its place is judged by its text."""
    pathlib.Path(good).chmod(0o666)
    status, answer = ask("--config", good, "config", "check")
    assert status == 5
    assert answer["problems"] == [
        f"{good}: cannot read it: it may be written by others (mode 0666): chmod go-w it if you trust it"
    ]
    assert ask("config", "check", good)[0] == 0


def test_what_cannot_be_read_is_told(tmp_path: pathlib.Path) -> None:
    """A file that was named must be there; what is too large is a problem."""
    status, answer = ask("config", "check", str(tmp_path / "none"))
    assert (status, answer["code"], answer["message"]) == (3, "cannot-read", f"there is no {tmp_path}/none")
    status, answer = ask("config", "--config", str(tmp_path), "check")
    assert (status, answer["code"]) == (3, "cannot-read")
    status, answer = ask("config", "check", "-", text=b"#" * 70000)
    assert (status, answer["code"]) == (5, "bad-config")
    assert "at most 65536 bytes" in answer["problems"][0]


def test_without_the_host_s_own_file_every_key_has_its_default(tmp_path: pathlib.Path) -> None:
    """No file is no problem."""
    if os.path.exists(build_info.CONFIG):
        pytest.skip("this machine has a configuration of its own")
    assert ask("config", "check")[0] == 0
    status, answer = ask("config", "--explain", "enabled")
    assert (status, answer["keys"][0]["current"], answer["keys"][0]["set_at"]) == (0, "true", "")


def test_one_key_and_all_keys_are_explained(good: str, bad: str) -> None:
    """From the table, with the place; a password stays where it is."""
    status, answer = ask("config", "--config", good, "--explain", "rollback_grace")
    assert status == 0
    assert answer["keys"] == [
        {
            "section": "update",
            "key": "rollback_grace",
            "meaning": "minor versions below the running one that may be taken",
            "value": "an integer from 0 to 100",
            "default": "1",
            "current": "4",
            "set_at": f"{good}:2",
            "problem": "",
        }
    ]
    status, answer = ask("config", "--config", good, "--explain")
    assert [one["key"] for one in answer["keys"]] == [key.name for key in config.KEYS]
    assert "secret" not in json.dumps(answer)
    status, out, _errors = run("config", "--config", bad, "--explain")
    assert status == 0
    assert "[update] rollback_grace = 1 (default)\n" in out
    assert sum(line.startswith("problem: ") for line in out.splitlines()) == 3


@pytest.mark.parametrize(
    "words", [[], ["check", "--explain"], ["judge"], ["--explain", "no_such_key"], ["check", "a", "b"]]
)
def test_a_wrong_command_line_is_told_as_such(words: List[str]) -> None:
    """Exit status 2, nothing on standard output."""
    status, out, errors = run("config", *words)
    assert (status, out) == (2, "")
    assert errors


# --- the staged release's word ---


@pytest.fixture
def product(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, good: str) -> products.Product:
    """The agent, with a fake systemd that runs what it is given."""
    monkeypatch.setenv("PATH", f"{guarding.FAKES}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_SYSTEMD", str(tmp_path))
    (tmp_path / "show").write_text("User=nobody\nGroup=\n")
    return own.load(good).product._replace(slots_dir=str(tmp_path))


def staged(product: products.Product, script: str) -> str:
    """A staged program that is this shell script."""
    path = pathlib.Path(product.slots_dir) / "b"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return str(path)


def test_the_staged_release_is_asked_as_the_service_user(product: products.Product, good: str) -> None:
    """Its own `config check` with this host's file, in a unit like the smoke test's."""
    seen = pathlib.Path(product.slots_dir) / "seen"
    effects.check_config(product, staged(product, f'echo "$*" >{seen}\n'), "1.1.0")
    assert seen.read_text() == f"config check --config {good} --json\n"
    call = (pathlib.Path(product.slots_dir) / "calls").read_text().splitlines()[-2]
    assert f"--unit=slotward-config-slotward-{os.getpid()}-" in call
    for wanted in ("User=nobody", "ProtectSystem=strict", "PrivateNetwork=yes", "CapabilityBoundingSet="):
        assert f"--property={wanted}" in call


def test_problems_that_the_staged_release_finds_refuse_the_switch(product: products.Product) -> None:
    """Each of them, and that it is the new release that objects."""
    answer = json.dumps({"code": "bad-config", "problems": ["f:1: one", "f:2: two"]})
    with pytest.raises(codes.BadConfig) as caught:
        effects.check_config(product, staged(product, f"echo a warning >&2; echo '{answer}'; exit 5\n"), "1.1.0")
    said = "slotward 1.1.0 does not take this configuration: "
    assert caught.value.problems == (said + "f:1: one", said + "f:2: two")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 5", "it ended with status 5"),
        ('echo \'{"code":"bad-config","message":"all of it"}\'; exit 5', "all of it"),
        ('echo \'{"code":"bad-config","problems":[],"message":"all"}\'; exit 5', "all"),
        ('echo \'{"code":"bad-config","problems":"x","message":"all"}\'; exit 5', "all"),
        ("echo '[1]'; echo null; echo '{'; exit 5", "it ended with status 5"),
        ('echo \'{"code":"record-broken","message":"x"}\'; exit 5', "it ended with status 5"),
    ],
)
def test_whatever_else_it_says_with_status_5_refuses(product: products.Product, script: str, why: str) -> None:
    """A later release may answer in another form."""
    with pytest.raises(codes.BadConfig) as caught:
        effects.check_config(product, staged(product, script + "\n"), "1.1.0")
    assert caught.value.problems == ("slotward 1.1.0 does not take this configuration: " + why,)


@pytest.mark.parametrize(("status", "warned"), [(0, False), (2, False), (1, True), (3, True), (139, True)])
def test_a_release_that_has_no_such_command_has_no_say(
    product: products.Product, capsys: pytest.CaptureFixture[str], status: int, warned: bool
) -> None:
    """Nor one that cannot read the file; the operator hears of what went wrong, and the trial shows the rest."""
    effects.check_config(product, staged(product, f"echo invalid choice >&2; exit {status}\n"), "1.1.0")
    said = f"slotward 1.1.0 did not judge the configuration (status {status}): invalid choice\n"
    assert capsys.readouterr().err == (said if warned else "")


def test_it_is_asked_only_where_the_smoke_test_is_wanted(
    product: products.Product, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the smoke test and not without it: who runs nothing of a staged release runs nothing of it."""
    seen = tmp_path / "order"
    path = staged(product, f'echo "$1" >>{seen}; echo 1.1.0\n')
    effects.check_slot(product, path, "1.1.0")
    assert seen.read_text() == "version\nconfig\n"
    off = tmp_path / "off.toml"
    off.write_text("[update]\nsmoke_test = false\n")
    assert own.load(str(off)).product.config_argv == ()
    effects.check_slot(product._replace(config_argv=()), path, "1.1.0")
    assert seen.read_text() == "version\nconfig\nversion\n"
