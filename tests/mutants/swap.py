# SPDX-License-Identifier: GPL-3.0-or-later
"""Put the code of one changed function into a module that is loaded already.

Most mutants change the inside of one function. Then nothing has to be imported anew: the function object stays the
same, so whoever holds it (a table, another module's name for it) has the changed one. That is the same as an import
of the changed source only where the rest of the module is equal and the function has not been called yet; the caller
asks for both.
"""

from __future__ import annotations

import inspect
from types import CodeType, FunctionType, ModuleType
from typing import Dict, NamedTuple, Optional, Sequence, Tuple


class Swap(NamedTuple):
    """A function of a module, the code it has, and the code it gets."""

    function: FunctionType
    was: CodeType
    becomes: CodeType

    def put(self) -> None:
        """Give the function its new code."""
        function, _was, becomes = self
        function.__code__ = becomes


def find(module: ModuleType, source: str, changed: str) -> Optional[Swap]:
    """What to put where, or None when the change is not inside of one function."""
    was, becomes = (compile(text, str(module.__file__), "exec", dont_inherit=True) for text in (source, changed))
    old, new = _functions(was), _functions(becomes)
    if _skeleton(was) != _skeleton(becomes) or set(old) != set(new):
        return None
    names = [name for name in old if _bare(old[name]) != _bare(new[name])]
    if len(names) != 1:
        return None
    function: object = module
    for name in names[0]:
        function = inspect.getattr_static(function, name, None)
    if not isinstance(function, FunctionType) or function.__code__ != old[names[0]]:
        return None
    if function.__code__.co_freevars != new[names[0]].co_freevars:
        return None
    return Swap(function, old[names[0]], new[names[0]])


def _is_function(value: object) -> bool:
    return isinstance(value, CodeType) and bool(value.co_flags & inspect.CO_OPTIMIZED)


def _functions(code: CodeType) -> Dict[Tuple[str, ...], CodeType]:
    """The functions of a module or class and those of its classes, by their names; of equal names the last counts."""
    found: Dict[Tuple[str, ...], CodeType] = {}
    for one in code.co_consts:
        if isinstance(one, CodeType) and _is_function(one):
            found[one.co_name,] = one
        elif isinstance(one, CodeType):
            found.update({(one.co_name, *name): inner for name, inner in _functions(one).items()})
    return found


def _skeleton(code: CodeType) -> CodeType:
    """The code of a module or class without the insides of its functions."""
    consts = (one.co_name if isinstance(one, CodeType) and _is_function(one) else one for one in code.co_consts)
    return _without_lines(code, [_skeleton(one) if isinstance(one, CodeType) else one for one in consts])


def _bare(code: CodeType) -> CodeType:
    """A function's code without the lines that it stands on, which move with what is above."""
    return _without_lines(code, [_bare(one) if isinstance(one, CodeType) else one for one in code.co_consts])


def _without_lines(code: CodeType, consts: Sequence[object]) -> CodeType:
    return code.replace(co_consts=tuple(consts), co_linetable=b"", co_firstlineno=1)
