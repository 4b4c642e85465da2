"""A code object -> its definition in the syntax tree of the file that it comes from.

The file may have changed since it was imported: a definition is that of the code only if it compiles to it.
"""

from __future__ import annotations

import ast
import dis
import linecache
import types
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from tenon.errors import PACKAGE
from tenon.records import dataclass

Function = ast.FunctionDef | ast.Lambda
CALLING = ("PUSH_NULL", "PRECALL", "NOP")


_generated: WeakKeyDictionary[types.CodeType, Definition] = WeakKeyDictionary()


class Unconvertible(Exception):
    """A function that stays as it is, and why."""


@dataclass(frozen=True)
class Definition:
    """A function in a syntax tree."""

    node: Function
    owner: str | None       # the class around it, whose name private names carry


def definition_of(code: types.CodeType, names: dict[str, Any]) -> Definition:
    """Where `code`, of a function with these globals, is defined; raises Unconvertible where there is no source."""
    if (known := _generated.get(code)) is not None:
        return known
    if not (same := _is_compiled(code, names)):     # what Python remembers of the file may be older than the code
        linecache.checkcache(code.co_filename)
        same = _is_compiled(code, names)
    found = [d for d in _definitions(_text(code, names)).get(code.co_firstlineno, ()) if _fits(d.node, code)]
    if code.co_name == "<lambda>":
        found = sorted(found, key=lambda d: _span(d.node)[1])[:1]       # of lambdas in each other the innermost
    found = [d for d in found if same or _has_assert(d.node)]
    if len(found) != 1:
        raise Unconvertible("its source is not to be found" if not found else
                            "several functions with its name stand in its line")
    return found[0]


def _text(code: types.CodeType, names: dict[str, Any]) -> str:
    return "".join(linecache.getlines(code.co_filename, names))


def _is_compiled(code: types.CodeType, names: dict[str, Any]) -> bool:
    """Whether the file, as far as it is known, has this code."""
    return code.co_filename.startswith(PACKAGE) or any(
        x == code or _meaning(x) == _meaning(code)
        for x in _compiled(_text(code, names)) if x.co_firstlineno == code.co_firstlineno)


def _has_assert(node: ast.AST) -> bool:
    """Whether tools for tests, such as pytest, may have compiled something else."""
    return any(isinstance(x, ast.Assert) for x in ast.walk(node))


@lru_cache(maxsize=256)
def _compiled(text: str) -> list[types.CodeType]:
    """The code of all functions of a file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = [compile(text, "", "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        return []
    for code in found:
        found += [x for x in code.co_consts if isinstance(x, types.CodeType)]
    return found


def _meaning(code: types.CodeType) -> Any:
    """The name and instructions of code, without what depends on the rest of the file: how methods are called."""
    rows = [(i.opname.replace("LOAD_METHOD", "LOAD_ATTR"), None if i.opcode in dis.hasjrel else _constant(i.argval))
            for i in dis.get_instructions(code) if i.opname not in CALLING]
    return code.co_name, rows


def _constant(x: Any) -> Any:
    return _meaning(x) if isinstance(x, types.CodeType) else (type(x), repr(x))


def define(code: types.CodeType, definition: Definition) -> None:
    """Say what code was made of that stands in no file as it is."""
    _generated[code] = definition


@lru_cache(maxsize=256)
def _definitions(text: str) -> dict[int, list[Definition]]:
    """The functions of a file by the line where their code begins."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):       # the file has changed since it was imported
        return {}
    found: dict[int, list[Definition]] = {}
    for definition in _below(tree, None):
        node = definition.node
        decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
        found.setdefault(min(x.lineno for x in [node, *decorators]), []).append(definition)
    return found


def _below(node: ast.AST, owner: str | None) -> Iterator[Definition]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.Lambda)):
            yield Definition(child, owner)
        yield from _below(child, child.name if isinstance(child, ast.ClassDef) else owner)


def _fits(node: Function, code: types.CodeType) -> bool:
    """Whether the code is that of this definition, as far as can be told: the file may have changed."""
    arguments = node.args
    names = tuple(x.arg for x in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs])
    taken = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
    if tuple(map(_plain, taken)) != tuple(map(_plain, names)):
        return False
    if isinstance(node, ast.FunctionDef):
        return node.name == code.co_name
    if code.co_name != "<lambda>":
        return False
    (first, last), _ = _span(node)
    return all(first <= (line, column) and (end, end_column) <= last
               for line, end, column, end_column in code.co_positions()
               if line is not None and end is not None and column is not None and end_column)


def _span(node: Function) -> tuple[tuple[tuple[int, int], tuple[int, int]], tuple[int, int]]:
    """Where the body of a lambda begins and ends, and how large it is, in lines and columns."""
    body: Any = node.body
    first, last = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    return (first, last), (last[0] - first[0], last[1] - first[1])


def _plain(name: str) -> str:
    """A name without the class that it is private to."""
    return "__" + name.split("__", 1)[1] if name.startswith("_") and "__" in name[1:] else name
