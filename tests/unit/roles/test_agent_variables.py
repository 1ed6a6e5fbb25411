# SPDX-License-Identifier: GPL-3.0-or-later
"""The role's variables: specification, defaults, documentation and use agree."""

from __future__ import annotations

import importlib
import pathlib
import re
from typing import Any, Dict

ROLE = pathlib.Path(__file__).resolve().parents[3] / "roles" / "agent"
yaml = importlib.import_module("yaml")
FACTS = {"agent_trial_pending"}


def spec() -> Dict[str, Any]:
    """The options of the argument specification."""
    found: Dict[str, Any] = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())
    options: Dict[str, Any] = found["argument_specs"]["main"]["options"]
    return options


def defaults() -> Dict[str, Any]:
    """The role's defaults."""
    found: Dict[str, Any] = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
    return found


def test_specification_and_defaults_agree() -> None:
    """Every variable is in both, with the same default; only agent_release has none."""
    assert set(spec()) == set(defaults())
    for name, option in spec().items():
        if name != "agent_release":
            assert option["default"] == defaults()[name], name
    assert "default" not in spec()["agent_release"]


def test_the_readme_has_every_variable_with_its_default() -> None:
    """A row for each, and none for what is not there."""
    rows = dict(re.findall(r"^\| `(agent_\w+)` \| \w+ \| ([^|]+) \|", (ROLE / "README.md").read_text(), re.MULTILINE))
    assert set(rows) == set(spec())
    for name, option in spec().items():
        default = option.get("default")
        if name == "agent_release":
            expected = "none (required)"
        elif isinstance(default, bool):
            expected = "`%s`" % str(default).lower()
        elif isinstance(default, list):
            expected = "`%s`" % (",".join(default) or "[]")
        else:
            expected = "`%s`" % ('""' if default == "" else default)
        assert rows[name].strip() == expected, name


def test_the_tasks_use_every_variable_and_no_other() -> None:
    """A variable that no task reads is a promise that is not kept; one that is not documented cannot be set."""
    text = "\n".join(path.read_text() for folder in ("tasks", "vars") for path in (ROLE / folder).glob("*.yml"))
    used = set(re.findall(r"(?<!_)\bagent_\w+", re.sub(r"slotward\.fleet\.agent_\w+", "", text))) - FACTS
    assert used == set(spec())


def test_the_configuration_has_every_key_of_the_agent() -> None:
    """Each key that the configuration module takes is set from a variable."""
    tasks = yaml.safe_load((ROLE / "tasks" / "configure.yml").read_text())
    args = tasks[0]["slotward.fleet.agent_config"]
    documented = yaml.safe_load(
        re.findall(
            r'DOCUMENTATION = r"""(.*?)"""',
            (ROLE.parents[1] / "plugins/modules/agent_config.py").read_text(),
            re.DOTALL,
        )[0]
    )
    for section in ("top", "update"):
        assert set(args[section]) == set(documented["options"][section]["suboptions"])
    for mode in ("helper", "start"):
        named = set(re.findall(r"'(\w+)': agent_", args[mode]))
        assert named == set(documented["options"][mode]["suboptions"])
        assert args[mode].endswith(" if agent_mode == '%s' else omit }}" % mode), (
            "without a mode the host keeps its own"
        )
    assert spec()["agent_mode"]["choices"] == ["", *documented["options"]["mode"]["choices"]]


def test_only_the_question_changes_nothing() -> None:
    """The same two tasks ask first whether a host can take a mode, and then make it so."""
    for name, register in (("configure", "__agent_config"), ("install", "__agent_setup")):
        tasks = yaml.safe_load((ROLE / "tasks" / (name + ".yml")).read_text())
        task = next(one for one in tasks if one.get("register") == register)
        assert task["check_mode"] == "{{ ansible_check_mode or (__agent_ask | bool) }}"
        assert task["changed_when"] == "%s is changed and not (__agent_ask | bool)" % register
    main = (ROLE / "tasks" / "main.yml").read_text()
    assert main.index("__agent_ask: true") < main.index("- name: Configure\n")
    assert yaml.safe_load((ROLE / "vars" / "main.yml").read_text())["__agent_ask"] is False
