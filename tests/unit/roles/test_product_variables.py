# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of the role product: specification, defaults, documentation, use, the module and the agent's table agree."""

from __future__ import annotations

import importlib
import pathlib
import re
from typing import Any, Dict

ROOT = pathlib.Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles" / "product"
yaml = importlib.import_module("yaml")
FACTS = {"product_trial_pending"}
REQUIRED = {"product_name"}
OTHER_NAME = {"enabled": "updates_enabled"}


def load(path: str) -> Any:
    """A file of the role."""
    return yaml.safe_load((ROLE / path).read_text())


def spec() -> Dict[str, Any]:
    """The options of the argument specification."""
    found: Dict[str, Any] = load("meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    return found


def module() -> Dict[str, Any]:
    """The module's documented options."""
    text = (ROOT / "plugins/modules/product.py").read_text()
    found: Dict[str, Any] = yaml.safe_load(re.findall(r'DOCUMENTATION = r"""(.*?)"""', text, re.DOTALL)[0])["options"]
    return found


def test_specification_and_defaults_agree() -> None:
    """Every variable is in both, with the same default; only the name has none."""
    defaults = load("defaults/main.yml")
    assert set(spec()) == set(defaults)
    assert {name for name, option in spec().items() if option.get("required")} == REQUIRED
    for name, option in spec().items():
        assert option.get("default", "") == defaults[name], name


def test_the_readme_has_every_variable_with_its_default() -> None:
    """A row for each, and none for what is not there."""
    rows = dict(re.findall(r"^\| `(product_\w+)` \| \w+ \| ([^|]+) \|", (ROLE / "README.md").read_text(), re.MULTILINE))
    assert set(rows) == set(spec())
    for name, option in spec().items():
        default = option.get("default")
        if name in REQUIRED:
            expected = "none (required)"
        elif isinstance(default, bool):
            expected = "`%s`" % str(default).lower()
        elif isinstance(default, list):
            expected = "`%s`" % (",".join(default) or "[]")
        elif isinstance(default, str) and "default(" in default:
            expected = "`%s`" % re.findall(r"'(.*)'", default)[0]
        else:
            expected = "`%s`" % ('""' if default == "" else default)
        assert rows[name].strip() == expected, name


def test_the_tasks_use_every_variable_and_no_other() -> None:
    """A variable that no task reads is a promise that is not kept; one that is not documented cannot be set."""
    text = "\n".join(path.read_text() for folder in ("tasks", "vars") for path in (ROLE / folder).glob("*.yml"))
    used = set(re.findall(r"(?<!_)\bproduct_\w+", text)) - FACTS
    assert used == set(spec())


def test_every_key_of_the_module_is_set_from_a_variable() -> None:
    """The whole description: each key of each section, by the variable of its name; lists go as they are."""
    args = load("tasks/present.yml")[0]["slotward.fleet.product"]
    options = module()
    assert set(args) - {"executable", "config"} == set(options) - {"state", "purge"}
    for name, option in options.items():
        suboptions = option.get("suboptions", {})
        if option["type"] == "dict":
            assert set(args[name]) == set(suboptions), name
            for key in suboptions:
                prefix = "" if name == "update" else name + "_"
                wanted = "product_" + prefix + OTHER_NAME.get(key, key)
                assert re.search(r"\b%s\b" % wanted, args[name][key]), key
        elif option["type"] == "list":
            assert set(spec()["product_" + name]["options"]) == set(suboptions), name
            for key, value in suboptions.items():
                mine = spec()["product_" + name]["options"][key]
                wanted = (value["type"], value.get("choices"), value.get("required"), value.get("elements"))
                assert (mine["type"], mine.get("choices"), mine.get("required"), mine.get("elements")) == wanted, key


def test_the_defaults_are_the_agents() -> None:
    """A variable that is not set gives what a key that is not set means."""
    table = importlib.import_module("ansible_collections.slotward.fleet.plugins.module_utils.slotcore.product_table")
    defaults = load("defaults/main.yml")
    for key in table.KEYS:
        if "*" in key.section:
            continue
        prefix = "" if key.section in ("", "update") else key.section + "_"
        name = "product_" + prefix + OTHER_NAME.get(key.name, key.name)
        usual = list(key.default) if isinstance(key.default, tuple) else key.default
        given = defaults[name]
        assert given == usual or (usual is None and given in ("", [])), name


def test_a_trial_is_asked_about_before_anything_is_changed() -> None:
    """Every task file that changes the host is guarded by the fact that the first look sets."""
    tasks = load("tasks/main.yml")
    names = [task["ansible.builtin.include_tasks"] for task in tasks if "ansible.builtin.include_tasks" in task]
    assert names == ["asked.yml", "preflight.yml", "present.yml", "upgrade.yml", "absent.yml"]
    for task in tasks[3:]:
        assert "not product_trial_pending | bool" in task["when"], task["name"]
