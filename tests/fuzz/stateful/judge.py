"""A program with state -> whether its jitted form gives, changes, raises and prints what it does eagerly, call by call."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import io
import re
import sys
import types
import warnings
from collections import ChainMap, deque
from pathlib import Path
from typing import Any

import numpy as np

import tenon as tn
from fuzz.stateful.grammar import Grammar

NUMBER = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?|nan|inf")
KEPT = ("opt", "linear")        # what an object holds of which the rest is told elsewhere
LARGE = 1000
DIGITS = {"rel": 1e-5, "abs": 1e-6}     # float32 layers stand beside float64


def calls() -> list[tuple[Any, ...]]:
    """The arguments of each call: other elements, numbers, flags, and once another shape."""
    draw = np.random.default_rng(0)
    x = [draw.normal(size=3) for _ in range(6)]
    return [(x[0], 2, 0.5, True), (x[1], 2, 0.5, True), (x[2], 3, 0.5, False), (x[3], 1, -1.5, True), (x[4], 3, 0.25, True),
            (np.stack([x[5], x[0]]), 2, 0.5, False), (-x[0], 0, 0.5, True), (x[5], -1, 0.5, False), (x[1], 2, 0.5, True)]


def judge(seed: int, folder: Path) -> str | None:
    """What is wrong with the program of a seed, which is kept in the folder; None where nothing is."""
    path = folder / f"stateful_{seed}.py"
    path.write_text(Grammar(seed).program(), encoding="utf-8")
    wrong = judged(path)
    if wrong is None:
        path.unlink()
    return wrong


def judged(path: Path) -> str | None:
    """What is wrong with the program in a file."""
    eager, other = load(path, "eager"), load(path, "jitted")
    jitted = tn.jit(other.program)
    things = eager.Keeping(), other.Keeping()
    for k, given in enumerate(calls()):
        expected, found = told(eager, eager.program, things[0], given), told(other, jitted, things[1], given)
        if not alike(expected, found):
            return f"call {k}: {difference(expected, found)}"
    why = str(tn.explain(jitted))
    return "a bug, by tn.explain" if "(a bug of Tenon" in why else None


def load(path: Path, name: str) -> Any:
    """The program as a module of its own."""
    spec = importlib.util.spec_from_file_location(f"{path.stem}_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def told(module: Any, function: Any, thing: Any, given: tuple[Any, ...]) -> dict[str, Any]:
    """All that a call tells: its result or error, what it printed, and what it left in objects and globals."""
    x, *others = given
    said = io.StringIO()
    with contextlib.redirect_stdout(said), warnings.catch_warnings(action="ignore"):
        try:
            result = plain(function(thing, tn.tensor(x), *others))
        except Exception as error:
            result = type(error).__name__
    kinds = module.Keeping
    return {"result": result, "printed": said.getvalue(), "globals": (module.COUNT[0], module.LEVEL, kinds.scale, plain(kinds.kinds)),
            "gradient": plain(thing.p.grad), **{name: plain(value) for name, value in vars(thing).items() if name not in KEPT}}


def plain(value: Any, depth: int = 0) -> Any:
    """A value as numbers, texts and containers of Python."""
    if isinstance(value, tn.Tensor):
        return "tensor", str(value.dtype), value.detach().numpy().tolist()
    if isinstance(value, (list, tuple, deque)):
        return type(value).__name__, [plain(x, depth) for x in value]
    if isinstance(value, (set, frozenset)):
        return type(value).__name__, sorted(map(repr, value))
    if dataclasses.is_dataclass(value):
        return [(field.name, plain(getattr(value, field.name, "none"), depth + 1)) for field in dataclasses.fields(value)]
    if isinstance(value, types.FunctionType):
        return [plain(cell.cell_contents, depth + 1) for cell in value.__closure__ or ()]
    if isinstance(value, ChainMap):
        return plain(value.maps, depth)
    if isinstance(value, dict):
        return [(key, plain(x, depth)) for key, x in value.items()]
    if hasattr(value, "__dict__") and depth < 2:
        return [(key, plain(x, depth + 1)) for key, x in vars(value).items() if key not in KEPT]
    return value if isinstance(value, (bool, int, float, str, type(None))) else type(value).__name__


def alike(a: Any, b: Any) -> bool:
    """Whether two of these agree, numbers but for roundings; numbers in texts likewise."""
    if type(a) is type(b) is int and max(abs(a), abs(b)) > LARGE:      # made of a float that was rounded otherwise
        a, b = float(a), float(b)
    if isinstance(a, float) and isinstance(b, float):
        return a == b or bool(np.isclose(a, b, rtol=DIGITS["rel"], atol=DIGITS["abs"], equal_nan=True))
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, str) and a != b:
        return NUMBER.sub("#", a) == NUMBER.sub("#", b) and all(
            abs(float(p) - float(q)) <= 1e-3 * max(1.0, abs(float(p))) for p, q in zip(NUMBER.findall(a), NUMBER.findall(b), strict=True))
    return bool(a == b)


def difference(a: dict[str, Any], b: dict[str, Any]) -> str:
    """The first thing that differs, eager and jitted."""
    name = next(name for name in a if not alike(a[name], b.get(name)))
    return f"{name} is {a[name]} eagerly, and {b.get(name)} jitted"
