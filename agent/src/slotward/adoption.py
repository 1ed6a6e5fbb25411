# SPDX-License-Identifier: GPL-3.0-or-later
"""The plain file at the entrypoint, made by hand, a package or a script: may root take it into a slot?

Rules (seed 000 "Swap", step 2):
- A regular file with one link that root (or whoever runs this) owns and nobody else may write.
- Every directory on the way is root's too, and nobody else may write it unless it is sticky.
- A link to somewhere else is not adopted: somebody put it there for a reason.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Optional

from slotcore import codes, settle
from slotcore import product as products
from slotward import host, opening

_OF_A_LINK = {"the entrypoint": "set [update] entrypoint"}


def adoptable(path: str) -> Optional[codes.Refusal]:
    """Whether the plain file at the entrypoint may be taken into a slot by root."""
    try:
        os.close(open_adoptable(path))
    except codes.Refused as refused:
        return refused.refusal
    return None


def is_due(product: products.Product, state: settle.State, consent: bool) -> bool:
    """Whether the file at the entrypoint must be adopted; refuses what cannot be."""
    if state.entrypoint == "ours":
        return False
    if state.entrypoint == "file":
        refusal = adoptable(product.entrypoint)
        if refusal is not None:
            raise codes.Refused(refusal)
        if not (consent or product.adopt):
            raise codes.refused(
                codes.ADOPT_NEEDS_CONSENT,
                f"{product.entrypoint} is a plain file, placed by hand, a package or a script: it would be copied into a slot "
                f"and replaced by a link to {product.program_path('current')}; agree with --adopt or [update] adopt = true",
            )
        return True
    if state.entrypoint == "missing":
        raise codes.refused(
            codes.ENTRYPOINT_ELSEWHERE, f"there is nothing at {product.entrypoint}: run `slotward setup` first"
        )
    raise codes.refused(
        codes.ENTRYPOINT_ELSEWHERE,
        f"{product.entrypoint} is not a plain file and no link to {product.program_path('current')}: set [update] entrypoint",
    )


def open_adoptable(path: str, what: str = "the entrypoint") -> int:
    """A descriptor of the file at the entrypoint, or of one that is brought, if nobody but root (or whoever runs this) could have written it."""
    directory, name = os.path.split(os.path.abspath(path))
    try:
        above = os.open(directory, opening.DIRECTORY)
        try:
            descriptor = os.open(name, opening.READ, dir_fd=above)
        finally:
            os.close(above)
    except FileNotFoundError as error:
        raise codes.refused(codes.ENTRYPOINT_ELSEWHERE, "there is nothing at %s %s" % (what, path)) from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            text = "%s %s is a link to %s: %s" % (what, path, os.readlink(path), _OF_A_LINK.get(what, "give that one"))
            raise codes.refused(codes.ENTRYPOINT_ELSEWHERE, text) from error
        raise codes.refused(codes.ENTRYPOINT_UNSAFE, "cannot open %s %s: %s" % (what, path, error.strerror)) from error
    problem = _entrypoint_problem(os.fstat(descriptor)) or host.way_problem(directory)
    if problem:
        os.close(descriptor)
        raise codes.refused(codes.ENTRYPOINT_UNSAFE, "%s %s %s" % (what, path, problem))
    return descriptor


def _entrypoint_problem(found: os.stat_result) -> str:
    if not stat.S_ISREG(found.st_mode):
        return "is %s, not a plain file" % opening.kind(found.st_mode)
    problem = host.owner_problem(found)
    if problem:
        return problem
    if found.st_nlink != 1:
        return "has %d links, not one: replace it by a copy of its own" % found.st_nlink
    return ""
