"""A script for PyTorch, run by Tenon: its imports are changed, and calls that mean another thing are warned about.

    tenon port train.py --epochs 3              # runs it
    tenon port --output ported.py train.py      # writes it with the imports changed, and runs nothing

Only lines that import PyTorch change, and none moves, so errors and warnings name the lines of the script.
"""

from __future__ import annotations

import ast
import linecache
import sys
import types
from collections.abc import Sequence
from pathlib import Path

from tenon.debug.porting import porting
from tenon.debug.stage_texts import blaming
from tenon.errors import ArgumentError


def run_ported(file: str, arguments: Sequence[str]) -> None:
    """Run a script for PyTorch as the main program.

    Raises TenonError, at the line of the script, for what it raises.
    """
    path = Path(file)
    source = changed_imports(_text(path), file)
    module = types.ModuleType("__main__")
    module.__file__ = file
    before = sys.argv, sys.path[:], sys.modules["__main__"]
    sys.argv, sys.modules["__main__"] = [file, *arguments], module
    sys.path.insert(0, str(path.resolve().parent))
    linecache.cache[file] = len(source), None, source.splitlines(True), file
    try:
        with blaming(file), porting("torch"):
            exec(compile(source, file, "exec"), vars(module))
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = before


def write_ported(file: str, output: str) -> int:
    """Write a script with its imports changed; returns how many lines are other ones."""
    source = _text(Path(file))
    changed = changed_imports(source, file)
    Path(output).write_text(changed, encoding="utf-8")
    return sum(a != b for a, b in zip(source.splitlines(), changed.splitlines(), strict=True))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{path} holds no text: {error.reason} at byte {error.start}") from None


def changed_imports(source: str, file: str = "<script>") -> str:
    """The source with Tenon in the place of PyTorch in its imports, under the names that the program uses.

    >>> changed_imports("import torch\\nimport torch.nn.functional as F\\nfrom torch import nn")
    'import tenon as torch\\nimport tenon.nn.functional as F\\nfrom tenon import nn'
    """
    with blaming(file):
        tree = ast.parse(source, file)
    lines = source.splitlines(True)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(_is_torch(alias.name) for alias in node.names):
            text = "; ".join(_import_of(alias) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and _is_torch(node.module or ""):
            text = ast.unparse(ast.ImportFrom(_ours(node.module or ""), node.names, 0))
        else:
            continue
        _replace(lines, node, text)
    return "".join(lines)


def _is_torch(name: str) -> bool:
    return name == "torch" or name.startswith("torch.")


# Modules of PyTorch's whose names are one folder higher here.
MODULES = {
    "torch.autograd.functional": "tenon.autograd.functional_derivatives",
    "torch.cuda.amp": "tenon.amp", "torch.distributions.constraints": "tenon.distributions.constraints",
    "torch.distributions.transforms": "tenon.distributions.transforms", "torch.distributions": "tenon.distributions",
    "torch.nn.modules.utils": "tenon.nn.modules", "torch.nn.modules": "tenon.nn", "torch.nn.parameter": "tenon.nn",
    "torch.nn.parallel": "tenon.nn.parallel", "torch.utils.data": "tenon.utils.data",
    "torch.hub": "tenon.utils.hub", "torch.utils.model_zoo": "tenon.utils.hub",
}


def _ours(name: str) -> str:
    """The module of Tenon's that has the names of one of PyTorch's."""
    above = next((module for module in MODULES if name == module or name.startswith(f"{module}.")), None)
    return MODULES[above] if above else "tenon" + name.removeprefix("torch")


def _import_of(alias: ast.alias) -> str:
    """An import that binds the name that the program expects."""
    if not _is_torch(alias.name):
        return ast.unparse(ast.Import([alias]))
    ours = _ours(alias.name)
    if alias.name.startswith("torch.backends."):        # an object there, not a module
        name = alias.name.rpartition(".")[2]
        return f"from tenon.backends import {name} as {alias.asname}" if alias.asname else "import tenon as torch"
    if alias.asname or alias.name == "torch":
        return f"import {ours} as {alias.asname or 'torch'}"
    return f"import {ours}; import tenon as torch"


def _replace(lines: list[str], node: ast.stmt, text: str) -> None:
    """Write a statement over another one, which keeps its lines."""
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    head = lines[first].encode()[:node.col_offset].decode()
    tail = lines[last].encode()[node.end_col_offset:].decode()
    lines[first:last + 1] = [head + text + tail, *["\n"] * (last - first)]
