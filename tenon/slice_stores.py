"""`x[i][j] = value` and `x[i].add_(1)`, whose slice `x[i]` nobody holds -> the same stored into `x`.

Tensors are values, so such a slice is a copy, and the change would be lost.  Where the line that is running says what
it is a slice of, by names, attributes and numbers alone, that is read again and given the changed slice.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType
from typing import Any

# What an expression may consist of that is evaluated again: nothing that calls a function of the user's.
PLAIN = (ast.Name, ast.Attribute, ast.Constant, ast.Subscript, ast.Slice, ast.Tuple, ast.UnaryOp, ast.BinOp,
         ast.operator, ast.unaryop, ast.expr_context)


def store_slice(frame: FrameType, part: Any) -> bool:
    """Give what `part` is a slice of, in the expression that a frame is at, the elements of `part`; whether it could.

    The expression is that of an assignment, `x[i][j]`, or a call, `x[i].add_(1)`.
    """
    expression = _expression_at(frame.f_code, frame.f_lasti)
    if isinstance(expression, ast.Call):
        expression = expression.func
    held = getattr(expression, "value", None)
    if not isinstance(held, ast.Subscript) or not all(isinstance(node, PLAIN) for node in ast.walk(held)):
        return False

    def read(node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "<slice>", "eval"), frame.f_globals, frame.f_locals)
    return _stored(held, part, read)


def _stored(target: ast.Subscript, part: Any, read: Callable[[ast.expr], Any]) -> bool:
    """`target = part`, and the same of what the target is a slice of where nobody holds that either."""
    whole = read(target.value)
    if not isinstance(whole, type(part)):
        return False
    whole[_key(target.slice, read)] = part
    inside = target.value
    of_slice = isinstance(inside, ast.Subscript) and isinstance(read(inside.value), type(part))
    return not of_slice or _stored(inside, whole, read)     # type: ignore[arg-type]


def _key(index: ast.expr, read: Callable[[ast.expr], Any]) -> Any:
    """What stands between brackets, read."""
    if isinstance(index, ast.Tuple):
        return tuple(_key(x, read) for x in index.elts)
    if isinstance(index, ast.Slice):
        return slice(*(end and read(end) for end in (index.lower, index.upper, index.step)))
    return read(index)


@lru_cache(1024)
def _expression_at(code: CodeType, instruction: int) -> ast.expr | None:
    """The expression that an instruction belongs to; None where there is no source."""
    line, last, start, stop = next(islice(code.co_positions(), instruction // 2, None))
    if line is None or last is None or start is None or stop is None:
        return None
    lines = [linecache.getline(code.co_filename, k).encode() for k in range(line, last + 1)]
    lines[-1] = lines[-1][:stop]
    lines[0] = lines[0][start:]
    try:
        return ast.parse(f"({b''.join(lines).decode()})", mode="eval").body
    except (SyntaxError, UnicodeDecodeError):
        return None

