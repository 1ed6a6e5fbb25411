# SPDX-License-Identifier: GPL-3.0-or-later
"""What the pages name is there: files, make targets, playbooks, modules and variables."""

from __future__ import annotations

import pathlib
import re
from typing import List, Set

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "roles/**/*.md", "tests/**/*.md") for path in REPOSITORY.glob(pattern)
)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
TARGET = re.compile(r"^(?:`|    )?make ([a-z0-9-]+)|`make ([a-z0-9-]+)", re.MULTILINE)
CONTENT = re.compile(r"slotward\.fleet\.([a-z_]+)")
VARIABLE = re.compile(r"\b((?:agent|upgrade|release|status)_[a-z0-9_]+)\b")


def text_of(name: str) -> str:
    """A file of the repository."""
    return (REPOSITORY / name).read_text(encoding="utf-8")


def known_variables() -> Set[str]:
    """The variables that the role and the playbooks offer, with the configuration keys that share their form."""
    names = set(re.findall(r"^#?\s*([a-z_0-9]+):", text_of("roles/agent/defaults/main.yml"), re.MULTILINE))
    for playbook in (REPOSITORY / "playbooks").glob("*.yml"):
        names.update(VARIABLE.findall(playbook.read_text(encoding="utf-8")))
    names.update(re.findall(r"`([a-z_]+)`", text_of("docs/design/node.md")))
    return names | {"release_info", "release_document", "release_publish"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    """Every relative link of every page names a file or directory of the repository."""
    links = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    generated = {"CHANGELOG.md"}  # written with the first release by antsibull-changelog
    assert [link for link in links if not (page.parent / link).exists() and link not in generated] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_make_targets_exist(page: str) -> None:
    """Whoever types what a page says finds the target."""
    offered = set(re.findall(r"^([a-z0-9-]+):", text_of("Makefile"), re.MULTILINE))
    named = {first or second for first, second in TARGET.findall(text_of(page))}
    assert named
    assert named - offered == set()


def test_the_readme_names_content_that_exists() -> None:
    """Each slotward.fleet.NAME is a playbook, a module or the role."""
    offered = {path.stem for path in [*REPOSITORY.glob("playbooks/*.yml"), *REPOSITORY.glob("plugins/modules/*.py")]}
    offered |= {path.name for path in REPOSITORY.glob("roles/*")}
    named = set(CONTENT.findall(text_of("README.md")))
    assert named
    assert named - offered == set()


def test_the_readme_names_variables_that_exist() -> None:
    """Each role or playbook variable in the README is offered by the role or a playbook."""
    named = set(VARIABLE.findall(text_of("README.md")))
    assert len(named) > 5
    assert named - known_variables() == set()


def test_every_decision_is_in_the_index() -> None:
    """The index of decisions lists each page once, by its title."""
    index = text_of("docs/adr/README.md")
    missing: List[str] = []
    for path in sorted((REPOSITORY / "docs" / "adr").glob("0*.md")):
        title = re.sub(r"^#\s*0*\d+[.:]\s*", "", path.read_text(encoding="utf-8").splitlines()[0])
        if "- %d: [%s](%s)" % (int(path.name[:4]), title, path.name) not in index.splitlines():
            missing.append(path.name)
    assert missing == []
