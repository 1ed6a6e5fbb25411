# SPDX-License-Identifier: GPL-3.0-or-later
"""What the collection's tests share: modules run in this process, and whole playbooks against a stand-in of the agent."""

from __future__ import annotations

import contextlib
import functools
import http.server
import importlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "unit" / "plugins" / "support"
COLLECTION = "ansible_collections.slotward.fleet.plugins."
SHA = {"amd64": "ab" * 32, "arm64": "cd" * 32}

Answers = Dict[str, List[List[Any]]]


@pytest.fixture(scope="session")
def collections(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A collections path in which this checkout is slotward.fleet."""
    path = tmp_path_factory.mktemp("collections")
    (path / "ansible_collections" / "slotward").mkdir(parents=True)
    (path / "ansible_collections" / "slotward" / "fleet").symlink_to(ROOT)
    return path


@pytest.fixture(scope="session", autouse=True)
def _importable(collections: pathlib.Path) -> None:
    """Plugins import each other by the collection's full name."""
    sys.path.append(str(collections))


class Agent(NamedTuple):
    """A stand-in of the agent in its own directory."""

    directory: pathlib.Path

    @property
    def path(self) -> str:
        """Its program."""
        return str(self.directory / "slotward")

    def says(self, **answers: List[List[Any]]) -> None:
        """What it answers to each command."""
        (self.directory / "answers.json").write_text(json.dumps(answers))

    def calls(self) -> List[Dict[str, Any]]:
        """Every call so far, without the options that all have."""
        log = self.directory / "calls.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def commands(self) -> List[List[str]]:
        """The words of every call so far."""
        return [call["argv"] for call in self.calls()]


def make_agent(directory: pathlib.Path) -> Agent:
    """A stand-in in a new directory."""
    directory.mkdir(parents=True)
    program = directory / "slotward"
    program.write_text("#!%s -I\n%s" % (sys.executable, (SUPPORT / "slotward.py").read_text()))
    program.chmod(0o755)
    return Agent(directory)


@pytest.fixture
def agent(tmp_path: pathlib.Path) -> Agent:
    """One stand-in."""
    return make_agent(tmp_path / "agent")


def answer(state: str, code: str = "ok", **more: Any) -> Dict[str, Any]:
    """An answer as the agent gives it."""
    base = {"spec": 1, "product": "slotward", "changed": False, "state": state, "code": code, "message": ""}
    return {**base, **{key.rstrip("_"): value for key, value in more.items()}}


def trial(left_s: int = 30, **more: Any) -> Dict[str, Any]:
    """A trial as the agent shows it; the id is the one that the caller chose."""
    known = {
        "id": "@ID@",
        "from": "1.0.0",
        "to": "1.1.0",
        "from_slot": "a",
        "to_slot": "b",
        "sequence": 2,
        "left_s": left_s,
        "length_s": 30,
        "boots_left": 3,
        "missing": ["controller"],
    }
    return {**known, **more}


def target(**more: Any) -> Dict[str, Any]:
    """A target as release_info returns it."""
    artifacts = {
        "linux-%s" % arch: {
            "name": "slotward_1.1.0_linux_%s" % arch,
            "url": "https://r.example/%s" % arch,
            "sha256": sha,
            "size": 5,
        }
        for arch, sha in SHA.items()
    }
    known = {
        "product": "slotward",
        "version": "1.1.0",
        "sequence": 2,
        "manifest": '{"signed": true}',
        "artifacts": artifacts,
    }
    return {**known, **more}


Run = Callable[..., Dict[str, Any]]


def _patch_module_args() -> Callable[[Dict[str, Any]], Any]:
    """How a module is given its arguments: the public way since ansible-core 2.19, the private one before."""
    try:
        found: Callable[[Dict[str, Any]], Any] = importlib.import_module(
            "ansible.module_utils.testing"
        ).patch_module_args
    except (ImportError, AttributeError):
        basic: Any = importlib.import_module("ansible.module_utils.basic")

        @contextlib.contextmanager
        def found(args: Dict[str, Any]) -> Iterator[None]:
            basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": args}).encode()
            try:
                yield
            finally:
                basic._ANSIBLE_ARGS = None

    return found


@pytest.fixture
def run_module(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a module in this process; its result."""
    patch = _patch_module_args()

    def run(name: str, check: bool = False, **args: Any) -> Dict[str, Any]:
        module = importlib.import_module(COLLECTION + "modules." + name)
        with (
            patch({**args, "_ansible_check_mode": check, "_ansible_diff": True}),
            pytest.raises(SystemExit),
        ):
            module.main()
        found: Dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return run


class Played(NamedTuple):
    """The end of a playbook: its exit status, and what each task said on each host."""

    rc: int
    out: str
    results: List[Dict[str, Any]]
    seconds: float

    def of(self, host: str, task: str) -> Dict[str, Any]:
        """The last result of a task on a host."""
        found = [line for line in self.results if line["host"] == host and task in line["task"]]
        assert found, "no task %r on %s in:\n%s" % (task, host, self.out)
        return {"kind": found[-1]["kind"], **found[-1]["result"]}

    def hosts(self, task: str) -> List[str]:
        """On which hosts a task ran."""
        return [line["host"] for line in self.results if task in line["task"] and line["kind"] != "skipped"]


class Stage:
    """Hosts with a stand-in each, and playbooks run against them."""

    def __init__(self, directory: pathlib.Path, collections: pathlib.Path) -> None:
        self.directory = directory
        self.collections = collections
        self.agents: Dict[str, Agent] = {}
        self.facts_are_variables = False
        """Ansible's own default is true; nothing of ours may need it."""

    def host(self, name: str, **answers: List[List[Any]]) -> Agent:
        """One more host, whose agent answers so."""
        made = make_agent(self.directory / name)
        made.says(**answers)
        self.agents[name] = made
        return made

    def _inventory(self) -> pathlib.Path:
        hosts = {
            name: {
                "ansible_connection": "fragile",
                "fragile_directory": str(agent.directory),
                "agent_path": agent.path,
                "agent_entrypoint": agent.path,
                "ansible_python_interpreter": sys.executable,
                "ansible_remote_tmp": str(agent.directory / "tmp"),
                "ansible_become": False,
            }
            for name, agent in self.agents.items()
        }
        path = self.directory / "inventory.json"
        path.write_text(json.dumps({"all": {"hosts": hosts}}))
        return path

    def play(self, playbook: Any, *options: str, **extra: Any) -> Played:
        """Run a playbook, given as data or by its name."""
        path = str(playbook)
        if not isinstance(playbook, str):
            path = str(self.directory / "play.json")
            pathlib.Path(path).write_text(json.dumps(playbook))
        results = self.directory / "results.jsonl"
        results.unlink(missing_ok=True)
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory),
            "PWD": str(self.directory),  # as a shell has it
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_COLLECTIONS_PATH": str(self.collections),
            "ANSIBLE_CONNECTION_PLUGINS": str(SUPPORT / "connection_plugins"),
            "ANSIBLE_CALLBACK_PLUGINS": str(SUPPORT / "callback_plugins"),
            "ANSIBLE_CALLBACKS_ENABLED": "results",
            "ANSIBLE_INJECT_FACT_VARS": str(self.facts_are_variables).lower(),
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_PIPELINING": "true",
            "RESULTS_FILE": str(results),
        }
        line = [
            os.path.join(os.path.dirname(sys.executable), "ansible-playbook"),
            "-i",
            str(self._inventory()),
            path,
            *options,
        ]
        since = time.monotonic()
        done = subprocess.run(
            [*line, "-e", json.dumps(extra)],
            env=env,
            cwd=self.directory,
            text=True,
            timeout=120,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        seconds = time.monotonic() - since
        lines = results.read_text().splitlines() if results.exists() else []
        return Played(done.returncode, done.stdout, [json.loads(text) for text in lines], seconds)


@pytest.fixture
def stage(tmp_path: pathlib.Path, collections: pathlib.Path) -> Stage:
    """An empty stage."""
    return Stage(tmp_path, collections)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """A web server that says nothing."""

    def log_message(self, *_args: Any) -> None:
        """Not to standard error."""


@pytest.fixture
def served(tmp_path: pathlib.Path) -> Iterator[str]:
    """The address of a web server of the test's directory."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield "http://127.0.0.1:%d" % server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


class Vocabulary(NamedTuple):
    """What the agent says, for tests that must not import this file by a name."""

    answer: Callable[..., Dict[str, Any]]
    trial: Callable[..., Dict[str, Any]]
    target: Callable[..., Dict[str, Any]]


@pytest.fixture(scope="session")
def say() -> Vocabulary:
    """Answers, trials and targets."""
    return Vocabulary(answer, trial, target)


class Released(NamedTuple):
    """A signed release on disk."""

    directory: pathlib.Path
    pins: Tuple[str, ...]
    private: Tuple[pathlib.Path, ...]
    public: Tuple[pathlib.Path, ...]


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory, _importable: None) -> Released:
    """Three keys, without a release yet."""
    maker = importlib.import_module(COLLECTION + "module_utils.slotcore.keys")
    directory = tmp_path_factory.mktemp("keys")
    private, public, pins = [], [], []
    for number, alg in enumerate(("ES256", "EdDSA", "ES256")):
        key = maker.generate(alg)
        private.append(directory / ("%d.pem" % number))
        public.append(directory / ("%d.pub.pem" % number))
        private[-1].write_bytes(key.pem())
        public[-1].write_bytes(maker.public_pem(key.public))
        pins.append(key.public.pin)
    return Released(directory, tuple(pins), tuple(private), tuple(public))


@pytest.fixture
def release(tmp_path: pathlib.Path, keys: Released) -> Callable[..., Released]:
    """Make a release signed by the first keys."""
    writer = importlib.import_module(COLLECTION + "module_utils.release_writer")

    def make(
        version: str = "1.1.0", sequence: int = 2, signers: int = 2, data: Optional[bytes] = None, **more: Any
    ) -> Released:
        artifact = tmp_path / ("%s_%s_linux_amd64" % (more.get("product", "slotward"), version))
        artifact.write_bytes(b"#!/bin/sh\n" if data is None else data)
        params = {
            "output": str(tmp_path / "releases"),
            "product": "slotward",
            "version": version,
            "sequence": sequence,
            "artifacts": [str(artifact)],
            "keys": [str(path) for path in keys.public],
            "sign_with": [str(path) for path in keys.private[:signers]],
            "passphrase": None,
            "expires_days": 30,
            "channel": "stable",
            "min_from": None,
            "epoch": 0,
            **more,
        }
        planned = writer.plan(params)
        writer.write(planned)
        return keys._replace(directory=pathlib.Path(planned.directory))

    return make
