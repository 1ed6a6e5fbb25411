# SPDX-License-Identifier: GPL-3.0-or-later
"""agent/build.py as a program: the same bytes every time, and a file that starts however it is started."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile
from typing import Iterator, List, Tuple

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FIXED_TREE_SHA256 = "f5aa1bace9baa2b26632e9b1785bb3f6fd4afca1fea1790348aadf4b01372cd0"

CLI = """# SPDX-License-Identifier: GPL-3.0-or-later
import sys


def main(argv):
    from slotward import _build
    if argv[:1] == ["late"]:
        print("ready", flush=True)
        sys.stdin.readline()
        from slotward import late
        print(late.WORD)
        return 0
    if argv[:1] == ["count"]:
        compiled = []
        sys.addaudithook(lambda event, args: compiled.append(args[1]) if event == "compile" else None)
        from slotward import late
        import slotward
        names = [name.partition("/fd/")[2].partition("/")[2] for name in compiled]
        files = [module.__file__.partition("/fd/")[2].partition("/")[2] for module in (slotward, late)]
        print(names, files)
        return 0
    print("%s %d %s %s" % (_build.VERSION, _build.SEQUENCE, _build.ARCH, argv))
    return 7
"""


class Tree:
    """A copy of the build program in a small tree of its own."""

    def __init__(self, top: pathlib.Path) -> None:
        self.top = top
        self.package = top / "agent" / "src" / "slotward"
        self.core = top / "plugins" / "module_utils" / "slotcore"
        for directory in (self.package / "resources", self.core):
            directory.mkdir(parents=True)
        shutil.copy(REPOSITORY / "agent" / "build.py", top / "agent")
        shutil.copy(REPOSITORY / "agent" / "src" / "__main__.py", top / "agent" / "src")
        shutil.copy(REPOSITORY / "plugins" / "module_utils" / "slotcore" / "semver.py", self.core)
        (self.core / "__init__.py").write_bytes(b"")
        (self.package / "__init__.py").write_bytes(b"")
        (self.package / "cli.py").write_text(CLI)
        (self.package / "resources" / "guard").write_text("#!/bin/sh\n")
        self.set_word("old")

    def set_word(self, word: str) -> None:
        """Change what the module that is imported late says."""
        (self.package / "late.py").write_text('WORD = "%s"\n' % word)

    def run(self, *arguments: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
        """Run the build program."""
        command = [python, str(self.top / "agent" / "build.py"), "--output", str(self.top / "out"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd="/")

    def build(self, *arguments: str, version: str = "1.1.0", python: str = sys.executable) -> pathlib.Path:
        """Build and return the file."""
        done = self.run("--version", version, "--sequence", "2", "--arch", "amd64", *arguments, python=python)
        assert done.returncode == 0, done.stderr
        return pathlib.Path(done.stdout.strip())


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> Tree:
    """A small tree to build from."""
    return Tree(tmp_path / "tree")


def digest(path: pathlib.Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pythons() -> Iterator[str]:
    """Every Python of 3.9 or later that this machine offers beside the running one."""
    roots = [pathlib.Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"]
    found = [str(path) for root in roots if root.is_dir() for path in sorted(root.glob("3.*/bin/python3"))]
    for candidate in [*found, "/usr/bin/python3"]:
        done = subprocess.run(
            [candidate, "-I", "-c", "import sys; print(sys.version_info >= (3, 9))"],
            capture_output=True, text=True, check=False, timeout=60,
        ) if os.access(candidate, os.X_OK) else None  # fmt: skip
        if done is not None and done.stdout.strip() == "True":
            yield candidate


def test_a_known_tree_gives_known_bytes(tmp_path: pathlib.Path) -> None:
    """The archive of a fixed tree has had the same digest on every machine so far."""
    tree = Tree(tmp_path / "tree")
    (tree.top / "agent" / "src" / "__main__.py").write_text("raise SystemExit\n")
    (tree.package / "cli.py").write_text("WORD = 1\n")
    (tree.core / "semver.py").write_text("def is_version(text):\n    return True\n")
    assert digest(tree.build()) == FIXED_TREE_SHA256


def test_every_python_makes_the_same_bytes(tree: Tree) -> None:
    """Which Python runs the build does not matter."""
    here = digest(tree.build())
    found = {python: digest(tree.build(python=python)) for python in pythons()}
    if not found:
        pytest.skip("no other Python than %s found" % sys.executable)
    assert set(found.values()) == {here}, found


def test_dates_modes_caches_and_umask_do_not_matter(tree: Tree) -> None:
    """What is not content leaves no trace in the archive, and the file is executable whatever the umask."""
    first = digest(tree.build())
    os.utime(tree.package / "cli.py", (1, 1))
    (tree.package / "cli.py").chmod(0o700)
    (tree.package / "__pycache__").mkdir()
    (tree.package / "__pycache__" / "cli.cpython-311.pyc").write_bytes(b"x")
    (tree.package / "cli.pyc").write_bytes(b"x")
    (tree.package / ".cli.py.swp").write_bytes(b"x")
    mask = os.umask(0o077)
    try:
        path = tree.build()
    finally:
        os.umask(mask)
    assert digest(path) == first
    assert path.stat().st_mode & 0o7777 == 0o755
    assert [entry.name for entry in path.parent.iterdir()] == ["slotward_1.1.0_linux_amd64"]


@pytest.mark.parametrize(
    "change", [["--version", "1.1.1"], ["--sequence", "3"], ["--arch", "arm64"], ["--pad-mib", "1"]], ids=lambda c: c[0]
)
def test_each_part_of_the_label_changes_the_bytes(tree: Tree, change: List[str]) -> None:
    """No two labels share their bytes."""
    first = digest(tree.build())
    done = tree.run("--version", "1.1.0", "--sequence", "2", "--arch", "amd64", *change)
    assert digest(pathlib.Path(done.stdout.strip())) != first


def test_the_archive_is_what_the_page_says(tree: Tree) -> None:
    """Interpreter line, stored and sorted entries of a fixed date, and a label that needs no running."""
    path = tree.build()
    assert path.read_bytes().startswith(b"#!/usr/bin/python3 -I\n")
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        assert [entry.filename for entry in entries] == [
            "__main__.py",
            "slotcore/__init__.py",
            "slotcore/semver.py",
            "slotward-build.json",
            "slotward/__init__.py",
            "slotward/_build.py",
            "slotward/cli.py",
            "slotward/late.py",
            "slotward/resources/guard",
        ]
        assert {
            (entry.compress_type, entry.date_time, entry.external_attr, entry.create_system) for entry in entries
        } == {(zipfile.ZIP_STORED, (1980, 1, 1, 0, 0, 0), 0o100644 << 16, 3)}
        label = archive.read("slotward-build.json")
    assert label == b'{"arch":"amd64","product":"slotward","sequence":2,"version":"1.1.0"}'
    assert json.loads(label)["sequence"] == 2


def started(path: pathlib.Path, tmp_path: pathlib.Path) -> List[Tuple[str, List[str]]]:
    """The ways in which the agent may be started."""
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(path) as archive:
        archive.extractall(unpacked)
    link = tmp_path / "current"
    link.symlink_to(path)
    return [
        ("itself", [str(path)]),
        ("a link to it", [str(link)]),
        ("python3 file", [sys.executable, str(path)]),
        ("python3 -I file", [sys.executable, "-I", str(path)]),
        ("a directory", [sys.executable, str(unpacked)]),
        ("its main file", [sys.executable, str(unpacked / "__main__.py")]),
    ]


def test_it_starts_however_it_is_started(tree: Tree, tmp_path: pathlib.Path) -> None:
    """Arguments and exit status go through, with the version and sequence of the build, from any directory."""
    for how, command in started(tree.build(), tmp_path):
        done = subprocess.run(
            [*command, "update", "--json"], capture_output=True, text=True, check=False, timeout=60, cwd="/"
        )
        assert (done.returncode, done.stdout) == (7, "1.1.0 2 amd64 ['update', '--json']\n"), (how, done.stderr)


@pytest.mark.parametrize("through_python", [False, True], ids=["by its own line", "by python3"])
def test_late_imports_come_from_the_file_that_was_started(
    tree: Tree, tmp_path: pathlib.Path, through_python: bool
) -> None:
    """A process started through a link goes on importing from its own release after the link has moved."""
    old = tree.build()
    tree.set_word("new" + "x" * 5000)
    new = tree.build(version="1.2.0")
    link = tmp_path / "current"
    link.symlink_to(old)
    command = [sys.executable, "-I", str(link)] if through_python else [str(link)]
    with subprocess.Popen([*command, "late"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        beside = tmp_path / "beside"
        beside.symlink_to(new)
        beside.rename(link)
        out, _errors = process.communicate("go\n", timeout=60)
    assert out == "old\n"


def test_a_module_is_compiled_once(tree: Tree) -> None:
    """No Python pays twice for a module, and tracebacks name its file in the archive."""
    path = str(tree.build())
    for python in {sys.executable, *pythons()}:
        done = subprocess.run(
            [python, "-I", path, "count"], capture_output=True, text=True, check=False, timeout=60, cwd="/"
        )
        expected = "['slotward/late.py'] ['slotward/__init__.py', 'slotward/late.py']\n"
        assert done.stdout == expected, (python, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--version", "v1.1.0", "--sequence", "2"], "'v1.1.0' is no semantic version"),
        (["--version", "1.1", "--sequence", "2"], "'1.1' is no semantic version"),
        (["--version", "1.1.0/../x", "--sequence", "2"], "is no semantic version"),
        (["--version", "1.1.0", "--sequence", "0"], "--sequence 0 is not between 1 and 9007199254740991"),
        (["--version", "1.1.0", "--sequence", "9007199254740992"], "--sequence 9007199254740992 is not between"),
        (
            ["--version", "1.1.0", "--sequence", "2", "--extra", "/nonexistent"],
            "/nonexistent is no directory with files",
        ),
    ],
)
def test_a_bad_label_builds_nothing(tree: Tree, arguments: List[str], word: str) -> None:
    """The build refuses what a manifest would refuse, in one line, and writes no file."""
    done = tree.run("--arch", "amd64", *arguments)
    assert done.returncode == 1
    assert word in done.stderr
    assert done.stderr.startswith("build.py: cannot build: ")
    assert done.stderr.count("\n") == 1
    assert not (tree.top / "out").exists()


def test_extra_files_are_laid_over_the_archive(tree: Tree, tmp_path: pathlib.Path) -> None:
    """Tests can replace a module of the agent, but not the label."""
    extra = tmp_path / "extra"
    (extra / "slotward").mkdir(parents=True)
    (extra / "slotward" / "cli.py").write_text("def main(argv):\n    return 3\n")
    assert subprocess.run([str(tree.build("--extra", str(extra)))], check=False, timeout=60).returncode == 3
    (extra / "slotward" / "_build.py").write_text("SEQUENCE = 99\n")
    done = tree.run("--version", "1.1.0", "--sequence", "2", "--arch", "amd64", "--extra", str(extra))
    assert done.returncode == 1
    assert "has slotward/_build.py, which is written by the build" in done.stderr


def test_a_link_in_the_tree_is_refused(tree: Tree) -> None:
    """A link could bring in bytes from outside the tree."""
    (tree.package / "other.py").symlink_to("cli.py")
    done = tree.run("--version", "1.1.0", "--sequence", "2", "--arch", "amd64")
    assert done.returncode == 1
    assert "other.py is a link" in done.stderr


def test_padding_has_its_size_and_still_starts(tree: Tree) -> None:
    """A release can be made as large as a test needs."""
    plain = tree.build().stat().st_size
    padded = tree.build("--pad-mib", "3")
    assert 3 * 1024 * 1024 <= padded.stat().st_size - plain <= 3 * 1024 * 1024 + 200
    assert subprocess.run([str(padded)], stdout=subprocess.DEVNULL, check=False, timeout=60).returncode == 7
