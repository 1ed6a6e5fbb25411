# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of an archive ends up at the top of the version's directory, or the archive is refused."""

from __future__ import annotations

from typing import Dict, List

import pytest

from slotcore import archive, codes, unpacking


def entries(names: List[str]) -> List[archive.Entry]:
    """Files of these names; a name that ends in a slash is a directory, "." the root."""
    return [
        archive.Entry("" if name == "." else name.rstrip("/"), 0, name == "." or name.endswith("/"), True)
        for name in names
    ]


@pytest.mark.parametrize(
    ("names", "placed"),
    [
        (["app", "share/", "share/x"], {"app": "app", "share": "share", "share/x": "share/x"}),
        ([".", "app"], {"": "", "app": "app"}),
        (["app-1.0/", "app-1.0/app", "app-1.0/x/y"], {"app-1.0": "", "app-1.0/app": "app", "app-1.0/x/y": "x/y"}),
        ([".", "app/app", "app/app.conf"], {"": "", "app/app": "app", "app/app.conf": "app.conf"}),
        (["bin/app", "share/x"], {"bin/app": "app", "share/x": "share/x"}),
        (["bin/app", "bin/tool", "x"], {"bin/app": "app", "bin/tool": "bin/tool", "x": "x"}),
        (["app", "old/app"], {"app": "app", "old/app": "old/app"}),
        (["bin/app", "deep/er/app"], {"bin/app": "app", "deep/er/app": "deep/er/app"}),
    ],
)
def test_the_program_comes_to_the_top(names: List[str], placed: Dict[str, str]) -> None:
    """At the root, below one directory of all, or taken up by itself."""
    found = entries(names)
    layout = unpacking.lay_out(found, "app")
    assert isinstance(layout, unpacking.Layout)
    assert {entry.name: unpacking.place(layout, entry.name) for entry in found} == placed


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ([], "it has no file app at its root or one level down"),
        (["app/"], "it has no file app at its root or one level down"),
        (["a/b/app", "xapp", "b/xapp"], "it has no file app at its root or one level down"),
        (["b/app", "a/app"], "it has more than one app: 'a/app', 'b/app'"),
        (["bin/app", "app/"], "'bin/app' cannot be put at the top, where there is another app"),
        (["app/app", "x"], "'app/app' cannot be put at the top, where there is another app"),
        (["bin/app", "app/x"], "'bin/app' cannot be put at the top, where there is another app"),
    ],
)
def test_no_program_or_two_are_refused(names: List[str], why: str) -> None:
    """Nobody would know what starts."""
    assert unpacking.lay_out(entries(names), "app") == codes.Refusal(
        codes.BAD_ARCHIVE, "cannot take the archive: " + why
    )
