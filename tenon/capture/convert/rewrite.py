"""A code object -> the code object that captures control flow on tensors: the visitors in order, and the compiler."""

from __future__ import annotations

import ast
import copy
import types
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from tenon.capture.code_origin import STANDS_FOR
from tenon.capture.convert.ast_templates import HELPER
from tenon.capture.convert.desugar_expressions import Expressions
from tenon.capture.convert.desugar_match import Cases
from tenon.capture.convert.desugar_walrus import Walruses
from tenon.capture.convert.lower_jumps import lower_jumps
from tenon.capture.convert.scope import bound_by, globals_of, nodes_of
from tenon.capture.convert.source_definitions import Definition, Unconvertible, definition_of
from tenon.capture.convert.statements import PRIVATE, Statements

LOOKING = frozenset({"locals", "vars", "dir", "eval", "exec"})     # would show the rewritten code's own variables
ASYNCHRONOUS = (ast.AsyncFor, ast.AsyncWith, ast.Await)


def rewritten(code: types.CodeType, names: dict[str, Any]) -> types.CodeType:
    """The code of a function with these globals, rewritten; raises Unconvertible where it has to stay as it is."""
    if code.co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR):
        raise Unconvertible("it is asynchronous")
    definition = definition_of(code, names)
    node = as_function(definition, code)
    check(node)
    convert_function(node, definition.owner, frozenset())
    try:
        new = compiled(node, definition, code)
    except (SyntaxError, ValueError, RecursionError) as error:      # such as more nested blocks than Python takes
        raise Unconvertible(f"it cannot be rewritten: {error}") from None
    _stand_for(new, code)
    return new


CO_COROUTINE, CO_ASYNC_GENERATOR = 0x80, 0x200


def as_function(definition: Definition, code: types.CodeType) -> ast.FunctionDef:
    """The definition without decorators, defaults and annotations, which are the function's, not its code's."""
    node: Any = copy.deepcopy(definition.node)
    if isinstance(node, ast.Lambda):
        body: list[ast.stmt] = [ast.copy_location(ast.Return(node.body), node.body)]
        node = ast.copy_location(ast.FunctionDef(code.co_name, node.args, body, [], None), node)
    node.decorator_list, node.returns = [], None
    node.args.defaults, node.args.kw_defaults = [], [None] * len(node.args.kwonlyargs)
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    function: ast.FunctionDef = node
    return function


def check(node: ast.FunctionDef) -> None:
    """Raise Unconvertible where a function must stay as it is."""
    for x in ast.walk(node):
        if isinstance(x, ast.Call) and isinstance(x.func, ast.Name) and x.func.id in LOOKING and len(x.args) < 1 + (
                x.func.id in ("eval", "exec")):
            raise Unconvertible(f"it calls {x.func.id}(), which looks at its variables")
        if isinstance(x, ASYNCHRONOUS):
            raise Unconvertible("it is asynchronous")


def convert_function(node: ast.FunctionDef, owner: str | None, outer: Collection[str]) -> None:
    """Convert a function in place, and the functions in it; `outer` are merged variables of those around it."""
    name_super(node)
    node.body = [x for statement in node.body for x in _listed(Walruses().visit(statement))]
    lower_jumps(node)
    cases = Cases()
    node.body = [x for statement in node.body for x in _listed(cases.visit(statement))]
    own = {n for n in bound_by(node.body) if not n.startswith(PRIVATE)} - globals_of(node.body)
    arguments = {x.arg for x in ast.walk(node.args) if isinstance(x, ast.arg)}
    merged = {n for n in own | (set(outer) - arguments - set(bound_by(node.body))) if not n.startswith(HELPER)}
    inner = list(_functions_in(node.body, owner))
    expressions = Expressions(merged, owner)
    node.body = [x for statement in node.body for x in _listed(expressions.visit(statement))]
    visitor = Statements(node, owner)
    node.body = [x for statement in node.body for x in _listed(visitor.visit(statement))]
    for function, around in inner:
        convert_function(function, around, merged)


def name_super(node: ast.FunctionDef) -> None:
    """Write `super()` with its arguments: an operand becomes a function, in which it would have none."""
    parameters = [*node.args.posonlyargs, *node.args.args]
    for x in nodes_of(node.body):
        match x:
            case ast.Call(func=ast.Name(id="super"), args=[], keywords=[]) if parameters:
                x.args = [ast.copy_location(ast.Name(name, ast.Load()), x) for name in ("__class__", parameters[0].arg)]


def _functions_in(body: Sequence[ast.stmt], owner: str | None) -> Iterator[tuple[ast.FunctionDef, str | None]]:
    """The functions that are defined in these statements, and the class that each is a method of."""
    for x in nodes_of(body):
        if isinstance(x, ast.FunctionDef):
            yield x, owner
        elif isinstance(x, ast.ClassDef):
            yield from _functions_in(x.body, x.name)


def _listed(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [found]


def compiled(node: ast.FunctionDef, definition: Definition, code: types.CodeType,
             more: Sequence[str] = (HELPER,)) -> types.CodeType:
    """The code of the definition among the names that surrounded it: free variables, and the class around it.

    `more` are further free variables.
    """
    body: list[ast.stmt] = [node]
    if definition.owner is not None:
        body = [ast.ClassDef(definition.owner, [], [], body, [])]
        if definition.owner not in code.co_freevars:
            body.insert(0, ast.Global([definition.owner]))      # where its methods name the class, it is no cell
    elif node.name not in code.co_freevars:
        body.insert(0, ast.Global([node.name]))                 # a function that calls itself by its global name
    free = [ast.arg(name) for name in dict.fromkeys([*code.co_freevars, *more])]
    nothing = ast.arguments([], free, None, [], [], None, [])
    around = ast.FunctionDef("<around>", nothing, body, [], None)
    module = ast.Module([around], [])
    for x in (around, *body, *free):
        ast.copy_location(x, node)
    ast.fix_missing_locations(module)
    whole = compile(module, code.co_filename, "exec", dont_inherit=True, flags=code.co_flags & FUTURES)
    new: types.CodeType = whole
    for name in ("<around>", definition.owner, node.name):
        if name is not None:
            new = next(c for c in new.co_consts if isinstance(c, types.CodeType) and c.co_name == name)
    return new.replace(co_qualname=code.co_qualname)


FUTURES = 0x1000000         # from __future__ import annotations


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code objects inside another, the outer ones first."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    yield from inner
    for c in inner:
        yield from _codes(c)


def _stand_for(new: types.CodeType, old: types.CodeType) -> None:
    """Let what the new code names be looked up as what the old one does."""
    STANDS_FOR[new] = (old,)
    known: dict[tuple[str, int], list[types.CodeType]] = {}
    for code in _codes(old):
        known.setdefault((code.co_name, code.co_firstlineno), []).append(code)
    for code in _codes(new):
        STANDS_FOR[code] = tuple(known.get((code.co_name, code.co_firstlineno), [old]))
