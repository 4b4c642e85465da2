"""A call that is refused -> the text of its operands, as the user's line has them: `x`, `net.weight`, `tn.ones(3)`."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Sequence
from typing import Any

from tenon.errors import DeviceError, Location, user_location

MOST_SHOWN = 40     # characters of an operand's text


def refused_devices(name: str, inputs: Sequence[Any], devices: Sequence[Any],
                    where: Location | None = None) -> DeviceError:
    """The error of a call whose inputs lie on several devices; `devices` has None for what lies nowhere."""
    where = where or user_location()
    texts = operand_names(where, len(inputs))
    listed: list[tuple[str, Any]] = []
    for k, (x, device) in enumerate(zip(inputs, devices, strict=True)):
        if device is not None and all(device != other for _, other in listed):
            listed.append((f"{texts[k]} ({x.type})" if texts else f"input {k} ({x.type})", device))
    said = ", ".join(f"{text} {'is ' * (not k)}on {device}" for k, (text, device) in enumerate(listed))
    other = next((texts[k] for k, device in enumerate(devices) if texts and device == listed[1][1]), "x")
    return DeviceError(f"{name}: inputs lie on several devices: {said}", where=where,
                       hint=f'{other if other.isidentifier() or "." in other else f"({other})"}.to("{listed[0][1]}") '
                            f"is the same tensor there")


def operand_names(where: Location | None, count: int) -> list[str]:
    """The text of each of `count` operands of the call at a place; nothing where the source does not tell."""
    if where is None or where.column is None or where.end_column is None:
        return []
    line = linecache.getline(where.file, where.line).encode()
    try:
        tree = ast.parse(line[where.column:where.end_column].decode().strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return []
    found: list[ast.expr] = []
    if isinstance(tree, ast.BinOp):
        found = [tree.left, tree.right]
    elif isinstance(tree, ast.Compare) and len(tree.comparators) == 1:
        found = [tree.left, *tree.comparators]
    elif isinstance(tree, ast.Call):
        found = [y for x in (*tree.args, *(k.value for k in tree.keywords))
                 for y in (x.elts if isinstance(x, (ast.List, ast.Tuple)) else [x])]
        if isinstance(tree.func, ast.Attribute) and len(found) == count - 1:
            found = [tree.func.value, *found]
    texts = [ast.unparse(x) for x in found[:count]]
    return texts if len(texts) == count and all(len(text) <= MOST_SHOWN for text in texts) else []
