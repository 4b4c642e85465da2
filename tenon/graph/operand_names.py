"""A call that is refused -> the text of its operands, as the user's line has them: `x`, `net.weight`, `tn.ones(3)`."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sequence
from typing import Any

from tenon.errors import DeviceError, Location, user_location

MAX_SHOWN = 40      # characters of an operand's text


def refused_devices(name: str, inputs: Sequence[Any], devices: Sequence[Any],
                    where: Location | None = None) -> DeviceError:
    """The error of a call whose inputs lie on several devices; `devices` has None for what lies nowhere."""
    where = where or user_location()
    texts = operand_names(where, [device is not None for device in devices])
    listed: list[tuple[str, Any]] = []
    for k, (x, device) in enumerate(zip(inputs, devices, strict=True)):
        if device is not None and all(device != other for _, other in listed):
            listed.append((f"{texts[k]} ({x.type})" if texts else f"input {k} ({x.type})", device))
    said = ", ".join(f"{text} {'is ' * (not k)}on {device}" for k, (text, device) in enumerate(listed))
    (_, first), (_, second), *_ = listed
    other = texts[devices.index(second)] if texts else ""
    hint = f'{other if other.isidentifier() or "." in other else f"({other})"}.to("{first}") is the same tensor there' \
        if texts else f'.to("{first}") and .to("{second}") move tensors and modules'
    return DeviceError(f"{name}: inputs lie on several devices: {said}", where=where, hint=hint)


def operand_names(where: Location | None, tensors: Sequence[bool]) -> list[str]:
    """The text of each operand of the call at a place, of which these are tensors; nothing where the source does not
    tell."""
    if where is None or where.column is None or where.end_column is None:
        return []
    line = linecache.getline(where.file, where.line).encode()
    try:
        tree = ast.parse(line[where.column:where.end_column].decode().strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return []
    for found in _operands(tree):
        if len(found) == len(tensors) and not any(t and isinstance(x, ast.Constant) for x, t in zip(found, tensors)):
            texts = [ast.unparse(x) for x in found]
            return texts if all(len(text) <= MAX_SHOWN for text in texts) else []
    return []


def _operands(tree: ast.expr) -> Iterator[list[ast.expr]]:
    """What the operands of an expression may be: settings stand among arguments, a method's object before them."""
    if isinstance(tree, ast.BinOp):
        yield [tree.left, tree.right]
    elif isinstance(tree, ast.Compare) and len(tree.comparators) == 1:
        yield [tree.left, *tree.comparators]
    elif isinstance(tree, ast.Call):
        given = [y for x in (*tree.args, *(k.value for k in tree.keywords))
                 for y in (x.elts if isinstance(x, (ast.List, ast.Tuple)) else [x])]
        for listed in (given, [x for x in given if not isinstance(x, ast.Constant)]):
            yield listed
            if isinstance(tree.func, ast.Attribute):
                yield [tree.func.value, *listed]
