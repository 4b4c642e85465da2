"""Where an error was made -> what the line calls there, and what the names in it are.

    context_of(frame, ...)      # at y = tn.matmul(X, Y): Context("matmul", "X is f32[2, 3], Y is f32[4, 5]")

Nothing of the user's is run for it: attributes are read from where objects keep them, not asked for.
"""

from __future__ import annotations

import ast
import builtins
import linecache
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

MAX_NAMES = 4
MAX_LETTERS = 60        # of what is said of one name
INNER_SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
MISSING = object()
NAMED = (FunctionType, BuiltinFunctionType, MethodType, ModuleType)      # which say themselves what they are called


class Context(NamedTuple):
    called: str = ""        # the function of Tenon's, or of Python's, that is called there
    operands: str = ""      # what the names are


def context_of(frame: FrameType, file: str, line: int, column: int | None, end: int | None) -> Context:
    """What the expression at these columns of a line says; nothing where its source is not there."""
    if column is None or end is None or (tree := _parsed(linecache.getline(file, line), column, end)) is None:
        return Context()
    scope = {**vars(builtins), **frame.f_globals, **frame.f_locals}
    return Context(_called(tree, scope), ", ".join(_described(tree, scope)))


@lru_cache(maxsize=256)
def _parsed(source: str, column: int, end: int) -> ast.stmt | None:
    try:
        return ast.parse(source.encode()[column:end].decode()).body[0]
    except (SyntaxError, ValueError, IndexError):
        return None


def _called(tree: ast.stmt, scope: Mapping[str, Any]) -> str:
    match tree.value if isinstance(tree, ast.Expr) else None:
        case ast.Call(func=ast.Name(id=name)):
            one = scope.get(name)
            own = _is_own(one) and name in (_stored(one, "__name__"), _stored(one, "name"))
            return name if own or one is vars(builtins).get(name) else ""
        case ast.Call(func=ast.Attribute(value=owner, attr=name)):
            found = _value(owner, scope)
            if isinstance(found, ModuleType):
                return name if found.__name__.split(".")[0] == "tenon" and _is_own(_stored(found, name)) else ""
            return name if _is_own(found) and not _is_module(found) else ""
    return ""


def _is_own(one: Any) -> bool:
    """Whether it is Tenon's; an error, which users raise as well, is nobody's."""
    if isinstance(one, type) and issubclass(one, BaseException):
        return False
    module = _stored(one if isinstance(one, (type, *NAMED)) else type(one), "__module__")
    return isinstance(module, str) and module.split(".")[0] == "tenon"


def _stored(one: Any, name: str) -> Any:
    """An attribute as it is stored, in the object or in its classes; code of the user's is not asked."""
    if isinstance(one, NAMED):
        return getattr(one, name, MISSING) if not isinstance(one, ModuleType) else vars(one).get(name, MISSING)
    places = one.__mro__ if isinstance(one, type) else type(one).__mro__
    tables = ({} if isinstance(one, type) else _held(one), *map(vars, places))
    return next((table[name] for table in tables if name in table), MISSING)


def _held(one: Any) -> Mapping[str, Any]:
    """What an object holds by name; nothing where it keeps that elsewhere."""
    try:
        held = object.__getattribute__(one, "__dict__")
    except AttributeError:      # of slots
        return {}
    return held if type(held) is dict else {}


def _is_module(one: Any) -> bool:
    return _stored(type(one), "named_parameters") is not MISSING


def _has_parts(module: Any) -> bool:
    """Whether a layer of Tenon's holds others, which may be the user's."""
    held = _held(module)
    return "items_" in held or any(map(_is_module, held.values()))


def _described(tree: ast.stmt, scope: Mapping[str, Any]) -> Iterator[str]:
    told: dict[str, str] = {}
    for path in _paths(tree):
        words = _words(_value(path, scope))
        if words:
            told.setdefault(ast.unparse(path), words)
    return (f"{name} is {words}" for name, words in list(told.items())[:MAX_NAMES])


def _paths(tree: ast.AST) -> Iterator[ast.expr]:
    """Names and attributes of names, as they stand in the line; of `x.shape` also `x`."""
    if isinstance(tree, INNER_SCOPES):
        return
    if isinstance(tree, (ast.Name, ast.Attribute)):
        yield tree
    for child in ast.iter_child_nodes(tree):
        yield from _paths(child)


def _value(path: ast.expr, scope: Mapping[str, Any]) -> Any:
    """What a path stands for, if it can be read without running code."""
    match path:
        case ast.Name(id=name):
            return scope.get(name, MISSING)
        case ast.Attribute(value=owner, attr=name):
            found = _value(owner, scope)
            return vars(found).get(name, MISSING) if isinstance(found, ModuleType) else _held(found).get(name, MISSING)
    return MISSING


def _words(value: Any) -> str:
    if value is None or type(value) in (bool, int, float):
        words = repr(value)
    elif _is_own(type(value)) and _stored(type(value), "is_leaf") is not MISSING:
        words = str(value.type)
    elif _is_own(type(value)) and _is_module(value) and not _has_parts(value):
        words = str(value).split("  ")[0]       # behind it is how many parameters it has
    elif type(value).__module__ == "numpy" and hasattr(value, "strides"):
        words = f"{value.dtype} {list(value.shape)} of NumPy"
    else:
        return ""
    return words if len(words) <= MAX_LETTERS and "\n" not in words else ""
