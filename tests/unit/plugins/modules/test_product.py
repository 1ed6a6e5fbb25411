# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `product`: a description that is judged before it is written, set up, and taken out again."""

from __future__ import annotations

import importlib
import pathlib
import stat
from typing import Any, Dict, List, Set, Tuple

import pytest

DONE = [{"path": "/opt/slotward/redis/current", "what": "adopt /usr/bin/redis-server"}]
FULL: Dict[str, Any] = {
    "unit": "redis-server.service",
    "entrypoint": "/usr/bin/redis-server",
    "layout": "versions",
    "program": "redis-server",
    "keep": 3,
    "update": {
        "release_pins": ["sha256/a", "sha256/b"],
        "release_threshold": 2,
        "confirm_sources": ["controller", "probe"],
        "smoke_test": True,
        "adopt": False,
        "floor": "previous",
    },
    "source": {"url": "https://r.example/{version}", "hosts": ["r.example"]},
    "smoke": {"arguments": "--version", "expect": "v={version}"},
    "restart": {"method": "restart", "drain_s": 2},
    "probes": [
        {"name": "ping", "kind": "tcp", "address": "127.0.0.1:6379"},
        {"url": "http://127.0.0.1/", "name": "page", "kind": "http", "status": ["200-299", "301"], "need": "wanted"},
    ],
    "hooks": [{"name": "snapshot", "command": "/usr/local/bin/keep", "when": "always"}],
    "parts": [{"name": "unit", "from": "redis.service", "path": "/etc/systemd/system/redis.service", "kind": "unit"}],
    "windows": [{"name": "night", "days": ["mon-fri"], "from": "22:00", "to": "05:00", "zone": "Europe/Berlin"}],
    "freezes": [{"name": "xmas", "from": "2026-12-20", "to": "2027-01-03", "zone": "Europe/Berlin", "why": "away"}],
}
TEXT = """# Written by slotward.fleet.product. What is changed here by hand is lost when that runs again.

unit = "redis-server.service"
entrypoint = "/usr/bin/redis-server"
layout = "versions"
program = "redis-server"

[update]
release_pins = "sha256/a,sha256/b"
release_threshold = 2
confirm_sources = "controller,probe"
floor = "previous"

[source]
url = "https://r.example/{version}"
hosts = "r.example"

[smoke]
arguments = "--version"
expect = "v={version}"

[restart]
drain_s = 2

[probe-ping]
kind = "tcp"
address = "127.0.0.1:6379"

[probe-page]
kind = "http"
need = "wanted"
url = "http://127.0.0.1/"
status = "200-299,301"

[hook-snapshot]
command = "/usr/local/bin/keep"
when = "always"

[part-unit]
from = "redis.service"
path = "/etc/systemd/system/redis.service"
kind = "unit"

[window-night]
days = "mon-fri"
from = "22:00"
to = "05:00"
zone = "Europe/Berlin"

[freeze-xmas]
from = "2026-12-20"
to = "2027-01-03"
zone = "Europe/Berlin"
why = "away"
"""


class Host:
    """A stand-in of the agent with a configuration of its own, and the module run there."""

    def __init__(self, agent: Any, run_module: Any, say: Any) -> None:
        self.agent = agent
        self.say = say
        self.config = agent.directory / "etc" / "config.toml"
        self.file: pathlib.Path = agent.directory / "etc" / "products.d" / "redis.toml"
        self._run = run_module

    def says(self, setup: List[List[Any]], **more: Any) -> None:
        """The file is good, and setup answers so."""
        self.agent.says(**{"config": [[0, self.say.answer("idle", problems=[])]], "setup": setup, **more})

    def ready(self, changes: Any = None, **more: Any) -> List[Any]:
        """A good answer of setup."""
        found = DONE if changes is None else changes
        return [0, self.say.answer("idle", changed=bool(found), changes=found, version="7.0.15", left=[], **more)]

    def run(self, check: bool = False, **more: Any) -> Dict[str, Any]:
        """The module."""
        given = {"product": "redis", "executable": self.agent.path, "config": str(self.config)}
        known = {} if more.get("state") == "absent" else {key: FULL[key] for key in ("unit", "entrypoint")}
        found: Dict[str, Any] = self._run("product", check=check, **{**given, **known, **more})
        return found

    def words(self) -> List[List[str]]:
        """What was asked, without what every question has."""
        tail = ["--product", "redis", "--json"]
        lines = self.agent.commands()
        assert all(line[-3:] == tail and line[:2] == ["--config", str(self.config)] for line in lines), lines
        return [line[2:-3] for line in lines]


@pytest.fixture
def host(agent: Any, run_module: Any, say: Any) -> Host:
    """One."""
    return Host(agent, run_module, say)


def test_the_description_is_judged_then_planned_then_written_then_set_up(host: Host) -> None:
    """The whole text goes to the agent before the file is there; the file is root's alone, and what is usual is not in it."""
    host.says([host.ready()])
    result = host.run(adopt=True, divert=True, version="7.0.15", **FULL)
    assert not result.get("failed"), result
    assert (result["changed"], result["code"], result["version"]) == (True, "ok", "7.0.15")
    assert result["changes"] == [{"path": str(host.file), "what": "create"}, *DONE]
    asked, planned, done = host.words()
    consent = ["setup", "--adopt", "--divert", "--version", "7.0.15"]
    assert asked == ["config", "check", "-"]
    assert planned[:-1] == [*consent, "--check", "--planned"]
    assert done == consent
    calls = host.agent.calls()
    assert host.file.read_text() == TEXT
    assert (calls[0]["stdin"], calls[1]["planned"]) == (TEXT, TEXT)
    assert not pathlib.Path(planned[-1]).exists()
    assert stat.S_IMODE(host.file.stat().st_mode) == 0o600
    assert "+unit" not in result["diff"][0]["before"]
    assert result["diff"][0]["after"] == TEXT


def test_a_second_run_changes_nothing_and_sets_nothing_up(host: Host) -> None:
    """Setup is asked what it would do, and is not run when that is nothing."""
    host.says([host.ready(), host.ready(), host.ready([])])
    assert host.run(**FULL)["changed"] is True
    result = host.run(**FULL)
    assert (result["changed"], result["changes"]) == (False, [])
    assert [line[0] for line in host.words()] == ["config", "setup", "setup", "config", "setup"]
    assert "--check" in host.words()[-1]


def test_what_setup_would_mend_is_mended_though_the_file_is_right(host: Host) -> None:
    """A drop-in that somebody removed."""
    host.says([host.ready(), host.ready(), host.ready(), host.ready()])
    host.run()
    result = host.run()
    assert (result["changed"], result["changes"]) == (True, DONE)


def test_check_mode_predicts_and_writes_nothing(host: Host) -> None:
    """On a host where nothing of it is there, and with the same words."""
    host.says([host.ready()])
    result = host.run(check=True)
    assert (result["changed"], len(result["changes"])) == (True, 2)
    assert not host.file.parent.exists()
    assert all("--check" in line for line in host.words()[1:])


@pytest.mark.parametrize("problem", ["bad-config", "package-owns-path", "trial-pending"])
def test_a_refusal_comes_before_anything_is_written(host: Host, problem: str) -> None:
    """By the judgement of the file, by setup, or because of a trial: what was there stays, byte for byte."""
    host.says([host.ready()])
    host.run()
    before = host.file.read_bytes()
    text = "/usr/bin/redis-server belongs to the package redis-server"
    refused = host.say.answer("refused", problem, message=text, problems=["redis.toml:1: x"])
    host.says([[3, refused]], **({"config": [[5, refused]]} if problem == "bad-config" else {}))
    result = host.run(unit="other.service", update={"max_boots": 2})
    assert (result["failed"], result["changed"], result["code"], result["reason"]) == (True, False, problem, text)
    assert result["problems"] == ["redis.toml:1: x"]
    assert host.file.read_bytes() == before


@pytest.mark.parametrize("there", [False, True])
def test_what_setup_refuses_at_its_door_leaves_the_file_as_it_was(host: Host, there: bool) -> None:
    """A trial that began in between: the old file comes back, or none."""
    before = b""
    if there:
        host.says([host.ready()])
        host.run()
        before = host.file.read_bytes()
    late = [4, host.say.answer("failed", "trial-pending", message="trial 12 is pending")]
    host.says([host.ready(), late, late])
    result = host.run(update={"max_boots": 2})
    assert (result["failed"], result["changed"], result["code"]) == (True, False, "trial-pending")
    assert (host.file.read_bytes() if there else host.file.parent.exists()) == (before if there else False)


def test_what_setup_began_keeps_its_file(host: Host) -> None:
    """Half of it is done: the next run, or a removal, needs the file."""
    failed = [4, host.say.answer("failed", "no-space", message="no space")]
    host.says([host.ready(), failed, host.ready([])])
    result = host.run()
    assert (result["failed"], result["code"], result["changed"]) == (True, "no-space", True)
    assert host.file.exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"windows": [{"name": "w", "from": 1320, "to": "05:00", "zone": "UTC"}]}, 'in quotes, as "22:00"'),
        ({"probes": [{"name": "p", "kind": "unit"}, {"name": "p", "kind": "unit"}]}, "two probes of this name"),
        ({"probes": [{"name": "a b", "kind": "unit"}]}, "bare section name"),
    ],
)
def test_what_cannot_be_a_file_is_said_without_the_agent(host: Host, more: Any, said: str) -> None:
    """YAML's number for a time, a name that is there twice, one that is none."""
    result = host.run(**more)
    assert (result["failed"], result["code"]) == (True, "bad-config")
    assert said in result["msg"]
    assert host.agent.calls() == []


@pytest.mark.parametrize("name", ["slotward", "Redis", "../x", "a" * 65])
def test_a_name_that_is_none_touches_nothing(host: Host, name: str) -> None:
    """The agent itself is described by its own configuration."""
    result = host.run(product=name)
    assert (result["failed"], result["code"], result["file"]) == (True, "unknown-product", None)
    assert host.agent.calls() == []


def test_a_file_that_is_no_text_is_left_alone(host: Host) -> None:
    """Nobody could put it back."""
    host.file.parent.mkdir(parents=True)
    host.file.write_bytes(b"\xff\xfe")
    result = host.run()
    assert (result["failed"], result["code"]) == (True, "bad-config")
    assert host.file.read_bytes() == b"\xff\xfe"


def test_a_password_is_not_shown(host: Host) -> None:
    """Neither the old one nor the new one, in any part of the result."""
    host.says([host.ready()])
    host.run(update={"proxy": "http://u:old-secret@p.example:3128"})
    result = host.run(update={"proxy": "http://u:new-secret@p.example:3128"})
    assert result["changed"] is True
    assert "old-secret" not in str(result)
    assert "new-secret" not in str(result)
    assert "new-secret" in host.file.read_text()


def test_removal_is_the_agents_and_leaves_no_directory(host: Host) -> None:
    """The agent removes the file last; a directory with no product in it goes too. Again, there is nothing to do."""
    host.says([host.ready()])
    host.run()
    gone = [{"path": str(host.file), "what": "remove"}]
    host.says([host.ready()], remove=[[0, host.say.answer("idle", changed=True, changes=gone, left=["x stays"])]])
    result = host.run(check=True, state="absent", purge=True)
    assert (result["changed"], result["state"], host.words()[-1]) == (True, "idle", ["remove", "--purge", "--check"])
    host.file.unlink()
    assert host.run(state="absent")["changed"] is False
    host.file.write_text(TEXT)
    result = host.run(state="absent")
    assert (result["changed"], result["state"], result["changes"], result["left"]) == (
        True,
        "absent",
        gone,
        ["x stays"],
    )
    assert host.words()[-1] == ["remove"]
    host.file.unlink()
    host.says([host.ready()])
    result = host.run(state="absent")
    assert (result["changed"], result["state"], len(host.words())) == (False, "absent", 5)


def test_a_trial_refuses_a_removal(host: Host) -> None:
    """With the agent's own words."""
    host.says([host.ready()])
    host.run()
    host.says([host.ready()], remove=[[4, host.say.answer("failed", "trial-pending", message="trial 12 is pending")]])
    result = host.run(state="absent")
    assert (result["failed"], result["changed"], result["code"]) == (True, False, "trial-pending")
    assert host.file.exists()


def test_without_an_agent_nothing_is_written(host: Host) -> None:
    """And it says how to get one."""
    result = host.run(executable="/nonexistent/slotward")
    assert (result["failed"], result["code"]) == (True, "not-installed")
    assert not host.file.parent.exists()


def options() -> Tuple[Any, Any]:
    """The module's options and the table that they are of."""
    base = "ansible_collections.slotward.fleet.plugins.module_utils."
    return importlib.import_module(base + "product_options"), importlib.import_module(base + "slotcore.product_table")


def test_the_options_are_the_keys_of_the_table() -> None:
    """Every key can be set, with the type that it has, and nothing else can."""
    found, table = options()
    rows: Dict[str, Set[str]] = {}
    for key in table.KEYS:
        rows.setdefault(key.section, set()).add(key.name)
    mine = {"": set(found.TOP), **{name: set(keys) for name, keys in found.SECTIONS.items()}}
    for name, begin in found.SINGULAR.items():
        mine[begin + "-*"] = set(found.REPEATED[name]) - {"name"}
    assert mine == rows
    types = {"INTEGER": "int", "FLAG": "bool"}
    plural = {"NAMES", "PINS", "CHANNELS", "URLS"}
    for key in table.KEYS:
        section = found.TOP if key.section == "" else found.SECTIONS.get(key.section)
        if section is None:
            section = next(
                found.REPEATED[name] for name, begin in found.SINGULAR.items() if begin + "-*" == key.section
            )
        option = section[key.name]
        if key.kind.name in types:
            assert option["type"] == types[key.kind.name], key
        assert (option["type"] == "list") == (
            key.kind.name in plural or "comma-separated list" in key.words or key.name == "days"
        ), key
        if key.choices and option["type"] == "str":
            assert option["choices"] == list(key.choices), key
        assert option.get("required", False) == ((key.section, key.name) in table.REQUIRED and bool(key.section)), key


def test_a_full_description_is_one_that_the_agent_takes() -> None:
    """The text of these tests has no problem but the pins' own."""
    loader = importlib.import_module("ansible_collections.slotward.fleet.plugins.module_utils.slotcore.product_config")
    pin = "sha256/%s=" % ("A" * 43)
    other = "sha256/%s=" % ("B" * 42 + "E")
    text = TEXT.replace("sha256/a", pin).replace("sha256/b", other).replace("[hook-snapshot]", "[hook-drain]")
    loaded = loader.load(text.replace('when = "always"\n', ""), "redis.toml", "redis")
    product = loaded.product
    assert loaded.problems == ()
    assert (product.name, len(product.probes), product.windows[0].zone) == ("redis", 2, "Europe/Berlin")
