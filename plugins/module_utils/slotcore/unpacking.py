# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the members of an archive go: its program always lies at the top of the version's directory.

Rules:

* The program is a file of the product's name, at the archive's root or one level down; the root's comes first.
* When all lies below one directory, that directory goes and everything keeps its place beside the program;
  otherwise the program alone is taken up.
* Two programs, or something else in the program's place, are refused: nobody would know which one starts.
"""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Union

from . import archive, codes


class Layout(NamedTuple):
    """The member that is the program, its name at the top, and the directory that is taken away from all names."""

    program: str
    name: str
    above: str


def lay_out(entries: Sequence[archive.Entry], name: str) -> Union[Layout, codes.Refusal]:
    """How an archive with these members is laid out for a program of that name."""
    found = _programs(entries, name)
    if not found:
        return _refusal("it has no file %s at its root or one level down" % name)
    if len(found) > 1:
        return _refusal("it has more than one %s: %s" % (name, ", ".join(ascii(one) for one in sorted(found))))
    program = found[0]
    above = program[: -len(name)].rstrip("/")
    if not above or all(entry.name in ("", above) or entry.name.startswith(above + "/") for entry in entries):
        return Layout(program, name, above)
    if any(entry.name == name or entry.name.startswith(name + "/") for entry in entries):
        return _refusal("%s cannot be put at the top, where there is another %s" % (ascii(program), name))
    return Layout(program, name, "")


def _programs(entries: Sequence[archive.Entry], name: str) -> List[str]:
    files = [entry.name for entry in entries if not entry.directory]
    if name in files:
        return [name]
    return [one for one in files if one.endswith("/" + name) and one.count("/") == 1]


def _refusal(why: str) -> codes.Refusal:
    return codes.Refusal(codes.BAD_ARCHIVE, "cannot take the archive: %s" % why)


def place(layout: Layout, member: str) -> str:
    """Where a member goes below the version's directory; "" is that directory itself."""
    if member == layout.program:
        return layout.name
    if member == layout.above:
        return ""
    return member[len(layout.above) + 1 :] if layout.above else member
