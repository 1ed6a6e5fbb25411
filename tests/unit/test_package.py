# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's archive: what is in it, and that it works from an empty home, without this checkout and without a network."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
from typing import Dict, List, NamedTuple, Set

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = pathlib.Path(sys.executable).parent
MODULES = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py"))
FILTERS = sorted(path.stem for path in (ROOT / "plugins" / "filter").glob("*.py"))
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())
PLAYBOOKS = sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml"))
TOP = {
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "FILES.json",
    "LICENSE",
    "MAINTAINERS",
    "MANIFEST.json",
    "README.md",
    "SECURITY.md",
    "changelogs",
    "docs",
    "examples",
    "meta",
    "playbooks",
    "plugins",
    "roles",
}
MAY_BE_ABSENT = {"CHANGELOG.md"}  # written with the first release
RUN_TIME = ("meta", "plugins", "roles", "playbooks")


class Home(NamedTuple):
    """An empty home into which the archive was installed."""

    directory: pathlib.Path
    archive: pathlib.Path

    @property
    def environment(self) -> Dict[str, str]:
        """Nothing of the user's own, and no other collections."""
        return {
            "PATH": f"{PROGRAMS}:/usr/bin:/bin",
            "HOME": str(self.directory),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_COLLECTIONS_PATH": str(self.directory / "collections"),
            "ANSIBLE_GALAXY_SERVER_LIST": "",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
        }

    @property
    def collection(self) -> pathlib.Path:
        """Where it was installed."""
        return self.directory / "collections" / "ansible_collections" / "slotward" / "fleet"

    def run(self, *argv: str) -> str:
        """Run one of Ansible's programs, which must succeed, and give what it said."""
        done = subprocess.run(
            [str(PROGRAMS / argv[0]), *argv[1:]],
            env=self.environment,
            cwd=self.directory,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The archive, built (or the one that SLOTWARD_ARCHIVE names), in an empty home."""
    directory = tmp_path_factory.mktemp("home")
    given = os.environ.get("SLOTWARD_ARCHIVE")
    found = Home(directory, pathlib.Path(given or directory / "slotward-fleet.tar.gz"))
    if not given:
        built = subprocess.run(
            [str(PROGRAMS / "ansible-galaxy"), "collection", "build", "--output-path", str(directory)],
            env=found.environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert built.returncode == 0, built.stderr
        (archive,) = directory.glob("slotward-fleet-*.tar.gz")
        found = found._replace(archive=archive)
    found.run(
        "ansible-galaxy", "collection", "install", str(found.archive), "--offline", "-p", str(directory / "collections")
    )
    return found


@pytest.fixture(scope="module")
def members(home: Home) -> List[tarfile.TarInfo]:
    """Everything in the archive."""
    with tarfile.open(home.archive) as archive:
        return archive.getmembers()


def test_the_archive_has_what_users_need_and_nothing_else(members: List[tarfile.TarInfo]) -> None:
    """Neither agent, tests, tools nor anything that make writes; a new name at the top is decided here."""
    top = {member.name.split("/")[0] for member in members}
    assert top - TOP == set()
    assert TOP - top - MAY_BE_ABSENT == set()


def test_the_archive_is_what_git_knows(members: List[tarfile.TarInfo]) -> None:
    """No file of it is unknown to git or ignored by it, so what is built here is what is built from a clone."""
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    known = set(listed.stdout.decode().split("\0")) | {"MANIFEST.json", "FILES.json"}
    assert {member.name for member in members if member.isfile()} - known == set()


def test_the_archive_is_small_and_plain(members: List[tarfile.TarInfo]) -> None:
    """Only files and directories, none big, none a cache or a binary."""
    assert [member.name for member in members if not (member.isfile() or member.isdir())] == []
    assert [member.name for member in members if member.size > 100_000] == []
    assert [
        member.name for member in members if re.search(r"__pycache__|\.pyc$|\.tar\.gz$|\.pem$|(^|/)\.", member.name)
    ] == []
    assert sum(member.size for member in members) < 2_000_000


def test_every_file_of_a_called_kind_is_in_it(members: List[tarfile.TarInfo]) -> None:
    """Whatever git has under meta, plugins, roles and playbooks is in the archive."""
    there = {member.name for member in members}
    missing: Set[str] = set()
    for top in RUN_TIME:
        for path in (ROOT / top).rglob("*"):
            name = str(path.relative_to(ROOT))
            if path.is_file() and "__pycache__" not in name and name not in there:
                missing.add(name)
    assert missing == set()


def test_nothing_reaches_out_of_the_archive(home: Home) -> None:
    """What users call reads nothing under agent, tests or docs when it runs: those are not there, or may be deleted."""
    outside = re.compile(r"""(?:playbook_dir|role_path|__file__)[^\n]*(?:agent/(?:src|build)|tests/|docs/)""")
    wrong = [
        str(path.relative_to(home.collection))
        for top in RUN_TIME
        for path in (home.collection / top).rglob("*")
        if path.is_file() and outside.search(path.read_text(encoding="utf-8"))
    ]
    assert wrong == []


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_playbooks_are_found_by_their_full_name(home: Home, playbook: str) -> None:
    """ansible-playbook takes slotward.fleet.NAME from the installed archive."""
    said = home.run("ansible-playbook", "--syntax-check", "-e", "target=localhost", f"slotward.fleet.{playbook}")
    assert f"{home.collection}/playbooks/{playbook}.yml" in said


def test_modules_and_plugins_are_documented(home: Home) -> None:
    """ansible-doc shows each module, filter and role from the installed archive, with descriptions, examples and results."""
    modules = json.loads(home.run("ansible-doc", "--json", *(f"slotward.fleet.{name}" for name in MODULES)))
    assert sorted(modules) == [f"slotward.fleet.{name}" for name in MODULES]
    for name, shown in modules.items():
        assert str(home.collection) in shown["doc"]["filename"], name
        assert shown["doc"]["short_description"], name
        assert f"{name}:" in shown["examples"], name
        assert shown["return"], name
        assert {"check_mode", "diff_mode", "platform"} <= set(shown["doc"]["attributes"]), name
    filters = json.loads(
        home.run("ansible-doc", "--json", "-t", "filter", *(f"slotward.fleet.{name}" for name in FILTERS))
    )
    assert sorted(filters) == [f"slotward.fleet.{name}" for name in FILTERS]
    names = [f"slotward.fleet.{name}" for name in ROLES]
    roles = json.loads(home.run("ansible-doc", "--json", "-t", "role", *names))
    assert sorted(roles) == names
    for name in names:
        assert "main" in roles[name]["entry_points"], name


def test_a_module_runs_from_the_archive(home: Home) -> None:
    """node_info brings all that it imports: it answers for a machine without an agent, with nothing of this checkout on a path."""
    said = home.run(
        "ansible",
        "localhost",
        "-m",
        "slotward.fleet.node_info",
        "-a",
        f"executable={home.directory}/none config={home.directory}/none.toml",
        "-e",
        json.dumps({"ansible_python_interpreter": sys.executable}),
    )
    answer = json.loads(said.partition("=>")[2])
    assert (answer["installed"], answer["state"], answer["changed"]) == (False, "absent", False)


def test_the_version_is_everywhere_the_same(home: Home) -> None:
    """The archive's name, its manifest and galaxy.yml agree; the modules are not newer than it."""
    manifest = json.loads((home.collection / "MANIFEST.json").read_text(encoding="utf-8"))["collection_info"]
    (version,) = re.findall(r"^version: (\S+)$", (ROOT / "galaxy.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert manifest["version"] == version
    assert home.archive.name == f"slotward-fleet-{version}.tar.gz"
    assert manifest["dependencies"] == {}


def test_both_environments_have_the_same_ansible() -> None:
    """Molecule plays with the ansible-core that all else is tested with."""
    found = {
        name: re.findall(
            r"^(ansible-core|cryptography|requests)==(\S+)$", (ROOT / "tools" / name).read_text(), re.MULTILINE
        )
        for name in ("requirements.txt", "requirements-collection.txt")
    }
    assert found["requirements.txt"] == found["requirements-collection.txt"]
    assert len(found["requirements.txt"]) == 3
