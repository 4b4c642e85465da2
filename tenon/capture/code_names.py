"""Code -> the names that it can read: globals, attributes, imports."""

from __future__ import annotations

import dis
import re
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from tenon.records import dataclass

LOOKS_UP = frozenset({"vars", "dir", "__dict__", "setattr", "delattr", "__getattribute__"})
SETS = frozenset({"vars", "__dict__", "setattr", "delattr", "__setattr__", "__delattr__", "globals", "locals", "exec",
                  "eval", "reload", "import_module", "__import__"})
IGNORED = frozenset({"CACHE", "EXTENDED_ARG", "PRECALL", "PUSH_NULL"})
LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
STORES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME", "DELETE_NAME", "STORE_ATTR", "DELETE_ATTR"})
ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"})
DELETES = {"DELETE_GLOBAL": "LOAD_GLOBAL", "DELETE_ATTR": "LOAD_ATTR"}     # which asks whether there is something
LOOKS_AT_ALL = frozenset({"__reduce_ex__", "__reduce__", "__getstate__"})   # of an object


@dataclass(frozen=True)
class CodeNames:
    """The names that a code object can read; `computed` where it makes up names of attributes."""

    global_names: frozenset[str]
    attributes: frozenset[str]
    imports: tuple[tuple[str, int], ...]
    computed: bool
    stored: frozenset[str]      # globals and attributes that it sets or deletes
    sets_any: bool              # or any other


@lru_cache(maxsize=4096)
def names_of(code: types.CodeType) -> CodeNames:
    """The globals and attributes that one code object names."""
    loads, attributes, imported, stored = _named(code)
    seldom = imported or not loads.isdisjoint(("getattr", "hasattr"))
    instructions = list(dis.get_instructions(code)) if seldom else []       # which takes ten times as long
    strings = {part for text in _strings(code.co_consts) for part in (*text.split("."), *formatted(text))
               if part.isidentifier()}
    imports = [(i.argval, before.argval if isinstance(before.argval, int) else 0)
               for (before, _), i in zip(pairwise(instructions), instructions[2:], strict=False)
               if i.opname == "IMPORT_NAME"]
    computed = bool((LOOKS_UP | LOOKS_AT_ALL) & (loads | attributes)) or any(
        i.opname in LOADS and i.argval in ("getattr", "hasattr") and not _names_a_constant(instructions, k)
        for k, i in enumerate(instructions))
    if imported:        # a package gets its modules as attributes
        stored |= attributes | {part for name in imported for part in name.split(".")}
    return CodeNames(frozenset(loads), frozenset(attributes | strings), tuple(imports), computed,
                 frozenset(stored), not SETS.isdisjoint(loads | attributes))


def _named(code: types.CodeType) -> tuple[set[str], set[str], set[str], set[str]]:
    """(the globals that a code object loads, the attributes, the modules that it imports, what it stores)."""
    found: tuple[set[str], set[str], set[str], set[str]] = (set(), set(), set(), set())
    data, names, extended = code.co_code, code.co_names, 0
    for operation, argument in zip(data[::2], data[1::2], strict=True) if names else ():
        if operation in _NAMING:
            kind, others = _NAMING[operation]
            name = names[(argument | extended) >> others]
            found[kind].add(name)
            if operation in _DELETING:
                found[_DELETING[operation]].add(name)
        extended = (argument | extended) << 8 if operation == dis.EXTENDED_ARG else 0
    return found


# Operation -> (its place above, the bits of its argument that say something else than the place of a name).
OTHER_BITS = {"LOAD_GLOBAL": 1, "LOAD_SUPER_ATTR": 2, "LOAD_ATTR": 1 if sys.version_info >= (3, 12) else 0}
_NAMING = {dis.opmap[name]: (kind, OTHER_BITS.get(name, 0))
           for kind, listed in enumerate((LOADS, ATTRIBUTES, {"IMPORT_NAME"}, STORES))
           for name in listed if name in dis.opmap}

_DELETING = {dis.opmap[name]: _NAMING[dis.opmap[read]][0] for name, read in DELETES.items()}


@lru_cache(maxsize=4096)
def only_appends(code: types.CodeType, name: str, items: bool = False) -> bool:
    """Whether every use of a name in the code is the call of `append` or `extend`, its own or that of an item."""
    def appends(following: Sequence[dis.Instruction]) -> bool:
        *before, last = following
        return last.opname in ATTRIBUTES and last.argval in ("append", "extend") and \
            [i.opname for i in before] == ["LOAD_CONST", "BINARY_SUBSCR"][:len(before)]
    uses = _uses(code, name, 3 if items else 1)
    return uses is not None and all(map(appends, uses))


@lru_cache(maxsize=4096)
def only_counts(code: types.CodeType, name: str) -> bool:
    """Whether every use of a name in the code is the call of `append` or `extend`, or the argument of `len`."""
    if name in _strings(code.co_consts):
        return False
    found = [i for i in dis.get_instructions(code) if i.opname not in IGNORED]
    return all(_appends(found, k) or _is_counted(found, k) for k, i in enumerate(found) if i.argval == name)


def reading_places(code: types.CodeType, name: str) -> list[tuple[int, int | None]]:
    """The lines and columns at which code does anything else with a name than append to it, or to an item of it."""
    found = [i for i in dis.get_instructions(code) if i.opname not in IGNORED]
    return [(i.positions.lineno, i.positions.col_offset) for k, i in enumerate(found)
            if i.argval == name and i.opname.startswith("LOAD_") and i.positions is not None and i.positions.lineno
            and not _appends(found, k) and not _appends_to_item(found, k)]


def _appends_to_item(instructions: Sequence[dis.Instruction], k: int) -> bool:
    return [i.opname for i in instructions[k + 1:k + 3]] == ["LOAD_CONST", "BINARY_SUBSCR"] and \
        _appends(instructions, k + 2)


def _appends(instructions: Sequence[dis.Instruction], k: int) -> bool:
    following = instructions[k + 1]
    return following.opname in ATTRIBUTES and following.argval in ("append", "extend")


def _is_counted(instructions: Sequence[dis.Instruction], k: int) -> bool:
    """Whether what is loaded at `k` is handed to `len`, alone."""
    start = k
    while instructions[start].opname in ATTRIBUTES:     # self.history
        start -= 1
    before, after = instructions[start - 1], instructions[k + 1]
    return start > 0 and before.opname == "LOAD_GLOBAL" and before.argval == "len" and \
        (after.opname, after.arg) == ("CALL", 1)


@lru_cache(maxsize=4096)
def stored_keys(code: types.CodeType, name: str) -> frozenset[Any] | None:
    """The constants `k` of `name[k] = ...` in the code; None where a use of the name is anything else."""
    uses = _uses(code, name, 2)
    if uses is None or any([i.opname for i in use] != ["LOAD_CONST", "STORE_SUBSCR"] for use in uses):
        return None
    return frozenset(use[0].argval for use in uses)


def _uses(code: types.CodeType, name: str, count: int) -> list[list[dis.Instruction]] | None:
    """The instructions that follow each use of a name, so many; None where the code has the name as a string."""
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
    if name in _strings(code.co_consts):
        return None
    return [instructions[k + 1:k + 1 + count] for k, i in enumerate(instructions) if i.argval == name]


def _strings(constants: Iterable[Any]) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, tuple):
            yield from _strings(constant)


def formatted(text: str) -> list[str]:
    """The attributes that `text.format(...)` reads: `lr` of `{0.lr:.3f}`."""
    return re.findall(r"\.(\w+)", " ".join(re.findall(r"\{[^{}]*", text))) if "{" in text else []


def _names_a_constant(instructions: Sequence[dis.Instruction], start: int) -> bool:
    """Whether the second argument of the call of the function loaded at `start` is a string in the code.

    The stack is followed through an expression without jumps; anything else counts as made up.
    """
    depth, named = 0, False         # arguments on the stack; whether the second is a constant
    for i in instructions[start + 1:start + 60]:
        if i.opname in ("PUSH_NULL", "PRECALL", "CACHE", "EXTENDED_ARG", "KW_NAMES"):
            continue
        if i.opname == "CALL" and depth == i.arg:
            return named
        if "JUMP" in i.opname:
            return False
        before, depth = depth, depth + dis.stack_effect(i.opcode, i.arg)
        if depth == 2:
            named = before == 1 and i.opname == "LOAD_CONST" and isinstance(i.argval, str)
    return False


def module_of(cls: type) -> str:
    """The name of the module of a class, "" where that is no name: a class may say anything."""
    name = cls.__module__
    return name if isinstance(name, str) else ""
