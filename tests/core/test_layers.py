# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may import whom, how large a file may grow, and what the engine may not know (docs/CODING.md).

Each rule is a function from source text to a list of complaints, so that each is itself tested on text that breaks it.
"""

from __future__ import annotations

import ast
import enum
import pathlib
import re
import subprocess
import sys
from typing import Callable, Iterator, List, NamedTuple, Tuple

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SLOTCORE = REPOSITORY / "plugins" / "module_utils" / "slotcore"
AGENT = REPOSITORY / "agent" / "src" / "slotward"
PLUGINS = REPOSITORY / "plugins"
GUARD = AGENT / "resources" / "guard"

STATEMENTS = tuple(
    getattr(ast, name) for name in ("stmt", "excepthandler", "match_case") if hasattr(ast, name)
)  # a `match` is there from Python 3.10 on
FLOOR = (3, 9)
SLOTCORE_STDLIB = {
    "__future__",
    "typing",
    "enum",
    "json",
    "re",
    "hashlib",
    "base64",
    "binascii",
    "math",
    "struct",
    "zlib",
}
SLOTCORE_EXTRA = {"rfc3339.py": {"datetime"}, "keys.py": {"cryptography"}}
AGENT_EXTRA = {"download.py": {"requests"}}
LATE_ONLY = {"requests", "cryptography"}
TOO_SLOW_TO_START = {"dataclasses", "inspect", "asyncio", "unittest"}  # docs/adr/0002
DOCUMENTS = {"DOCUMENTATION", "EXAMPLES", "RETURN"}
UTILS = "ansible_collections.slotward.fleet.plugins."

SLOTCORE_LINES = 250
AGENT_LINES = 300
FUNCTION_LINES = 40
MODULE_LINES_BELOW_DOCUMENTATION = 80

# The formats are called after the project, and one table holds the defaults of the agent's own configuration file.
# Nothing else in the engine may know what the product is called.
NAMES_THE_PROJECT = {"manifest.py", "documents.py", "config.py", "config_table.py"}
GUARD_OWN_NAMES = re.compile(
    r"/usr/local/lib/slotward|slotward-(?:guard|data|rollback|deadline)@|slotward-guard(?::|$)|slotward (?:setup|doctor)\b"
)


class When(enum.Enum):
    """When an import runs."""

    LOADED = " when it is loaded"
    LATE = " in a function"
    NEVER = " for types"


class Import(NamedTuple):
    """One import of one module."""

    line: int
    module: str
    level: int
    when: When


def is_for_types(node: ast.AST) -> bool:
    """True for a block that only the type checker reads."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports(source: str) -> Iterator[Import]:
    """Every import in a source text, with when it runs; an import is a statement, and lies within statements only."""
    waiting: List[Tuple[ast.AST, When]] = [(ast.parse(source), When.LOADED)]
    while waiting:
        node, when = waiting.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, 0, when)
        elif isinstance(node, ast.ImportFrom):
            yield Import(node.lineno, node.module or "", node.level, when)
        elif is_for_types(node):
            when = When.NEVER
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and when is When.LOADED:
            when = When.LATE
        inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, STATEMENTS)]
        waiting += [(child, when) for child in reversed(inner)]


def root(module: str) -> str:
    """The top-level package of a module's name."""
    return module.partition(".")[0]


def is_slotcore_import(file: str, found: Import) -> bool:
    """slotcore imports itself relatively and a few modules that neither read nor wait."""
    if found.level:
        return found.level == 1
    name = root(found.module)
    return name in SLOTCORE_STDLIB or (
        name in SLOTCORE_EXTRA.get(file, set()) and not (name in LATE_ONLY and found.when is When.LOADED)
    )


def is_agent_import(file: str, found: Import) -> bool:
    """The agent imports itself, slotcore and the standard library; requests in one file, in a function."""
    if found.level:
        return False
    name = root(found.module)
    if name in TOO_SLOW_TO_START:
        return False
    if name in LATE_ONLY:
        return found.when is When.NEVER or (name in AGENT_EXTRA.get(file, set()) and found.when is When.LATE)
    return name in {"slotcore", "slotward"} or name in sys.stdlib_module_names


def is_node_plugin_import(file: str, found: Import) -> bool:
    """Modules and their helpers run on hosts: only what AnsiballZ carries, and the standard library."""
    if found.level:
        return found.level == 1 and not file.startswith("modules/")
    name = found.module
    return (
        name == "ansible.module_utils"
        or name.startswith(("ansible.module_utils.", UTILS + "module_utils"))
        or (root(name) in sys.stdlib_module_names)
    )


def is_controller_plugin_import(file: str, found: Import) -> bool:
    """Other plugins run on the controller: Ansible, this collection under its full name, the standard library."""
    if found.level:
        return False
    name = found.module
    return (
        root(name) in {"ansible", "yaml"}
        or name.startswith((UTILS + "module_utils", UTILS + "plugin_utils"))
        or root(name) in sys.stdlib_module_names
    )


def import_complaints(allowed: Callable[[str, Import], bool], file: str, source: str) -> List[str]:
    """The imports that a layer does not allow."""
    return [
        "%s:%d imports %s%s%s" % (file, found.line, "." * found.level, found.module, found.when.value)
        for found in imports(source)
        if not allowed(file, found)
    ]


def engine_complaints(file: str, source: str) -> List[str]:
    """What slotcore's files must and must not have in them beside imports."""
    if file == "__init__.py":
        return ["%s is not empty" % file] if source else []
    tree = ast.parse(source)
    wrong = ["%s:%d has an assert" % (file, node.lineno) for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    first = next((node for node in tree.body if not is_text(node)), None)
    if not (isinstance(first, ast.ImportFrom) and first.module == "__future__"):
        wrong.append("%s does not begin with from __future__ import annotations" % file)
    if not (ast.get_docstring(tree) or "").strip():
        wrong.append("%s does not say which rules it enforces" % file)
    return wrong


def is_text(node: ast.stmt) -> bool:
    """True for a string that stands alone, such as a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def name_complaints(file: str, source: str) -> List[str]:
    """Strings by which the engine would know one product."""
    tree = ast.parse(source)
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        "%s:%d knows %r" % (file, node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and id(node) not in texts
        and isinstance(node.value, (str, bytes))
        and ("slotward" in node.value if isinstance(node.value, str) else b"slotward" in node.value)
    ]


def guard_complaints(source: str) -> List[str]:
    """Lines of the guard that know a product's name; its own directory, units and commands are called after the project."""
    lines = enumerate(source.splitlines(), 1)
    code = [(number, line) for number, line in lines if not line.lstrip().startswith("#")]
    return ["guard:%d %s" % (number, line) for number, line in code if "slotward" in GUARD_OWN_NAMES.sub("", line)]


def size_complaints(file: str, source: str, most: int) -> List[str]:
    """What is over a budget: the file, and each function."""
    wrong = []
    lines = source.count("\n")
    if lines > most:
        wrong.append("%s has %d lines, budget %d" % (file, lines, most))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                wrong.append(
                    "%s:%d %s has %d lines, budget %d" % (file, node.lineno, node.name, length, FUNCTION_LINES)
                )
    return wrong


def module_complaints(file: str, source: str) -> List[str]:
    """What is over the budget below a module's documentation."""
    body = ast.parse(source).body
    documented = [
        node.end_lineno or 0
        for node in body
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id in DOCUMENTS for target in node.targets)
    ]
    lines = source.count("\n") - max(documented, default=0)
    if lines > MODULE_LINES_BELOW_DOCUMENTATION:
        return ["%s has %d lines below its documentation, budget %d" % (file, lines, MODULE_LINES_BELOW_DOCUMENTATION)]
    return []


def sources(top: pathlib.Path, pattern: str = "**/*.py") -> List[Tuple[str, str]]:
    """The files of a layer by their path below it, with their text; a layer without files is no layer."""
    found = [(str(path.relative_to(top)), path.read_text(encoding="utf-8")) for path in sorted(top.glob(pattern))]
    return [(name, text) for name, text in found if "__pycache__" not in name]


def node_plugins() -> List[Tuple[str, str]]:
    """The collection's files that run on hosts, the engine left out."""
    return [*sources(PLUGINS, "modules/*.py"), *sources(PLUGINS, "module_utils/*.py")]


def controller_plugins() -> List[Tuple[str, str]]:
    """The collection's files that run on the controller only."""
    return [
        source
        for kind in ("action", "filter", "inventory", "callback", "plugin_utils")
        for source in sources(PLUGINS, kind + "/**/*.py")
    ]


def test_the_engine_imports_nothing_that_reads_or_waits() -> None:
    """slotcore has no way to reach a file, a clock, a socket or a process."""
    files = sources(SLOTCORE)
    assert len(files) > 10
    assert [text for name, source in files for text in import_complaints(is_slotcore_import, name, source)] == []


def test_the_agent_imports_the_engine_and_the_standard_library() -> None:
    """Only download.py knows requests, and nothing in the agent knows cryptography or Ansible."""
    files = sources(AGENT)
    assert files
    assert [text for name, source in files for text in import_complaints(is_agent_import, name, source)] == []


def test_plugins_for_hosts_import_what_travels_to_hosts() -> None:
    """Modules use ansible.module_utils and this collection's module_utils by its full name."""
    files = node_plugins()
    assert files
    assert [text for name, source in files for text in import_complaints(is_node_plugin_import, name, source)] == []


def test_plugins_for_the_controller_use_full_names() -> None:
    """Action plugins, filters and the like never import slotcore or the agent by their short names."""
    files = controller_plugins()
    assert files
    wrong = [text for name, source in files for text in import_complaints(is_controller_plugin_import, name, source)]
    assert wrong == []


def test_the_engine_keeps_its_form() -> None:
    """No assert, empty package files, annotations that are not evaluated, and rules stated at the top."""
    assert [text for name, source in sources(SLOTCORE) for text in engine_complaints(name, source)] == []


def test_the_engine_knows_no_product() -> None:
    """A release of another daemon is treated by the same code: the engine has no string with the agent's name."""
    files = [(name, source) for name, source in sources(SLOTCORE) if name not in NAMES_THE_PROJECT]
    assert [text for name, source in files for text in name_complaints(name, source)] == []


def test_the_guard_knows_no_product() -> None:
    """The guard learns a product's unit and directory from its facts file alone."""
    assert guard_complaints(GUARD.read_text(encoding="utf-8")) == []


def test_everything_on_hosts_is_python_3_9() -> None:
    """What Debian 11 cannot parse never gets there."""
    for _name, source in [*sources(SLOTCORE), *sources(AGENT), *node_plugins()]:
        ast.parse(source, feature_version=FLOOR)


def test_files_and_functions_stay_small() -> None:
    """A file or function that outgrows its budget is split by noun."""
    wrong = [text for name, source in sources(SLOTCORE) for text in size_complaints(name, source, SLOTCORE_LINES)]
    wrong += [text for name, source in sources(AGENT) for text in size_complaints(name, source, AGENT_LINES)]
    wrong += [text for name, source in controller_plugins() for text in size_complaints(name, source, AGENT_LINES)]
    assert wrong == []


def test_modules_are_thin() -> None:
    """Below its documentation a module is one screen."""
    files = sources(PLUGINS, "modules/*.py")
    assert files
    assert [text for name, source in files for text in module_complaints(name, source)] == []


def test_the_engine_loads_without_cryptography() -> None:
    """Every file of slotcore can be imported where cryptography is not installed."""
    program = (
        "import importlib, pkgutil, sys\n"
        "class Blocker:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'cryptography':\n"
        "            raise ImportError('blocked: ' + name)\n"
        "sys.meta_path.insert(0, Blocker())\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import slotcore\n"
        "names = [found.name for found in pkgutil.iter_modules(slotcore.__path__, 'slotcore.')]\n"
        "for name in names:\n"
        "    importlib.import_module(name)\n"
        "print(len(names), 'cryptography' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program, str(SLOTCORE.parent)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    count, loaded = done.stdout.split()
    assert int(count) == len([name for name, _source in sources(SLOTCORE, "*.py")]) - 1
    assert loaded == "False"


def test_no_test_uses_the_engine_under_both_names() -> None:
    """Two copies of a class in one process make `is` lie."""
    both = []
    for name, source in sources(REPOSITORY / "tests"):
        modules = [found.module for found in imports(source)]
        short = any(root(module) == "slotcore" for module in modules)
        if short and any(module.startswith(UTILS + "module_utils.slotcore") for module in modules):
            both.append(name)
    assert both == []


@pytest.mark.parametrize(
    ("allowed", "file", "source"),
    [
        (is_slotcore_import, "settle.py", "import os"),
        (is_slotcore_import, "settle.py", "import time"),
        (is_slotcore_import, "settle.py", "from os.path import join"),
        (is_slotcore_import, "settle.py", "def f():\n    import socket"),
        (is_slotcore_import, "settle.py", "import datetime"),
        (is_slotcore_import, "settle.py", "import dataclasses"),
        (is_slotcore_import, "settle.py", "import slotcore.codes"),
        (is_slotcore_import, "settle.py", "from .. import other"),
        (is_slotcore_import, "settle.py", "def f():\n    import cryptography"),
        (is_slotcore_import, "keys.py", "import cryptography.exceptions"),
        (is_agent_import, "cli.py", "def f():\n    import requests"),
        (is_agent_import, "download.py", "import requests"),
        (is_agent_import, "download.py", "def f():\n    import cryptography"),
        (is_agent_import, "cli.py", "import dataclasses"),
        (is_agent_import, "cli.py", "import ansible"),
        (is_agent_import, "cli.py", "from . import lock"),
        (is_node_plugin_import, "modules/a.py", "from ansible.errors import AnsibleError"),
        (is_node_plugin_import, "modules/a.py", "import slotcore"),
        (is_node_plugin_import, "modules/a.py", "import requests"),
        (is_node_plugin_import, "modules/a.py", "from ..module_utils import ansible_glue"),
        (is_node_plugin_import, "modules/a.py", "import ansible_collections.slotward.fleet.plugins.action.upgrade"),
        (is_controller_plugin_import, "action/a.py", "import slotcore"),
        (is_controller_plugin_import, "action/a.py", "import slotward.cli"),
        (is_controller_plugin_import, "action/a.py", "import cryptography"),
    ],
)
def test_a_forbidden_import_is_seen(allowed: Callable[[str, Import], bool], file: str, source: str) -> None:
    """Each layer's rule finds an import that breaks it."""
    assert len(import_complaints(allowed, file, source)) == 1


@pytest.mark.parametrize(
    ("allowed", "file", "source"),
    [
        (is_slotcore_import, "keys.py", "def f():\n    from cryptography.hazmat import x\nfrom . import codes"),
        (is_slotcore_import, "rfc3339.py", "import datetime"),
        (is_agent_import, "other.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import requests"),
        (is_agent_import, "download.py", "import os\nfrom slotcore import codes\ndef f():\n    import requests"),
        (is_node_plugin_import, "modules/a.py", "from ansible.module_utils.basic import AnsibleModule\nimport os"),
        (is_controller_plugin_import, "action/a.py", "from ansible.plugins.action import ActionBase"),
    ],
)
def test_an_allowed_import_is_not_complained_of(allowed: Callable[[str, Import], bool], file: str, source: str) -> None:
    """The rules leave room for what the layers are for."""
    assert import_complaints(allowed, file, source) == []


@pytest.mark.parametrize(
    "complaints",
    [
        engine_complaints("a.py", '"""Rules."""\nfrom __future__ import annotations\nassert True\n'),
        engine_complaints("a.py", '"""Rules."""\nimport re\nfrom __future__ import annotations\n'),
        engine_complaints("a.py", "from __future__ import annotations\n"),
        engine_complaints("__init__.py", "from . import a\n"),
        name_complaints("a.py", 'UNIT = "slotward.service"\n'),
        name_complaints("a.py", 'MARK = b"slotward"\n'),
        name_complaints("a.py", 'def f(x):\n    """Like slotward."""\n    return f"{x}-slotward"\n'),
        guard_complaints("# slotward\nunit=slotward.service\nstop slotward-deadline@x.timer\n"),
        guard_complaints("say 'run slotward doctor'\ncd /opt/slotward/slotward\n"),
        size_complaints("a.py", "x = 1\n" * 251, 250),
        size_complaints("a.py", "def f():\n" + "    x = 1\n" * 40, 250),
        module_complaints("a.py", 'RETURN = """\n"""\n' + "x = 1\n" * 81),
    ],
)
def test_each_rule_of_form_can_complain(complaints: List[str]) -> None:
    """A text that breaks one rule of form gets exactly one complaint."""
    assert len(complaints) == 1
