"""`x[i][j] = value` and `x[i].add_(1)`, whose slice `x[i]` nobody holds -> the same stored into `x`.

Tensors are values, so such a slice is a copy, and the change would be lost.  Where the line that is running says what
it is a slice of, by names, attributes and numbers alone, that is read again and given the changed slice.
"""

from __future__ import annotations

import ast
import dis
import linecache
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from itertools import islice
from types import CodeType, FrameType
from typing import Any

from tenon.errors import ArgumentError

# What an expression may consist of that is evaluated again: nothing that calls a function of the user's.
PLAIN = (ast.Name, ast.Attribute, ast.Constant, ast.Subscript, ast.Slice, ast.Tuple, ast.UnaryOp, ast.BinOp,
         ast.operator, ast.unaryop, ast.expr_context)
STORING: set[Callable[..., Any]] = set()        # functions that store the slice that they change in place


def lost_change() -> ArgumentError:
    """What is raised where `x[i][j] = value` cannot be stored."""
    return ArgumentError("x[i][j] = value would change a copy that nobody holds: a slice is a tensor of its own",
                         hint="x[i, j] = value")


def store_slice(frame: FrameType, part: Any) -> bool:
    """Give what `part` is a slice of, in the expression that a frame is at, the elements of `part`; whether it could.

    The expression is that of an assignment, `x[i][j]`, or a call, `x[i].add_(1)`.
    """
    if (held := _slice_at(frame.f_code.co_filename, frame.f_code, frame.f_lasti)) is None:
        return False

    return _stored(held, part, partial(_read, frame=frame))


def says_its_whole(frame: FrameType, part: Any) -> bool:
    """Whether the expression that a frame is at changes an item of a tensor, `x[i].add_(1)`, and so can store it."""
    held = _slice_at(frame.f_code.co_filename, frame.f_code, frame.f_lasti)
    return held is not None and isinstance(_read(held.value, frame), type(part))


def _read(node: ast.expr, frame: FrameType) -> Any:
    return eval(compile(ast.Expression(node), "<slice>", "eval"), frame.f_globals, frame.f_locals)


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
def _slice_at(file: str, code: CodeType, instruction: int) -> ast.Subscript | None:
    """What the expression of an instruction changes an item of; None where the source does not say it for certain.

    The file is named beside the code, since codes of two files may be equal.
    """
    line, last, start, stop = next(islice(code.co_positions(), instruction // 2, None))
    if line is None or last is None or start is None or stop is None:
        return None
    lines = [linecache.getline(file, k).encode() for k in range(line, last + 1)]
    lines[-1] = lines[-1][:stop]
    lines[0] = lines[0][start:]
    try:
        expression = ast.parse(f"({b''.join(lines).decode()})", mode="eval").body
    except (SyntaxError, UnicodeDecodeError):
        return None
    held = getattr(expression.func if isinstance(expression, ast.Call) else expression, "value", None)
    if not isinstance(held, ast.Subscript) or not all(isinstance(node, PLAIN) for node in ast.walk(held)):
        return None
    return held if _is_compiled(held, code, (line, start)) else None


def _is_compiled(held: ast.expr, code: CodeType, begin: tuple[int, int]) -> bool:
    """Whether the code reads the names and constants of the expression there: the file may have changed since."""
    assert held.end_col_offset is not None and held.end_lineno is not None
    end = begin[0] + held.end_lineno - 1, held.end_col_offset + (begin[1] - 1 if held.end_lineno == 1 else 0)
    there = [x for x in dis.get_instructions(code) if (p := x.positions) is not None and p.lineno is not None
             and begin <= (p.lineno, p.col_offset) and (p.end_lineno, p.end_col_offset) <= end]
    return _loads(there) == _loads(dis.get_instructions(compile(ast.Expression(held), "<slice>", "eval")))


def _loads(instructions: Iterable[dis.Instruction]) -> list[Any]:
    return [x.argval for x in instructions if x.opname.startswith("LOAD_")]
