"""A field of a phrase -> the text that stands there: names of values, and numbers that fit them.

    {x} the value that the phrase is about    {same} one of its shape    {wide} one that broadcasts to it
    {axis} {axes} {perm} {shape} {key} ...    what fits its shape        {num} {int:low,high} {word:a,b} {bool}
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from typing import Protocol

from fuzz.phrases import FUNCTIONS

FIELD = re.compile(r"\{(\w+)(?::([^}]*))?\}")
Writer = Callable[["Makes", str, str], str]


class Makes(Protocol):
    """What the generator offers: values by name, and new inputs."""

    rng: random.Random

    def type(self, name: str) -> tuple[str, tuple[int, ...]]: ...
    def like(self, dtype: str, shape: tuple[int, ...]) -> list[str]: ...
    def input(self, dtype: str, shape: tuple[int, ...], values: str = "normal") -> str: ...


def written(g: Makes, text: str, x: str) -> tuple[str, list[str]]:
    """A phrase's template, with `{0}`, `{1}` for values, and the values."""
    inputs = [x]

    def one(match: re.Match[str]) -> str:
        name, options = match[1], match[2] or ""
        if name in ("t", "u"):
            return match[0]
        if name == "x":
            return "{0}"
        found = FIELDS[name](g, x, options)
        return re.sub(r"`(\w+)`", lambda m: f"{{{place(inputs, m[1])}}}", found)
    return FIELD.sub(one, text), inputs


def place(inputs: list[str], name: str) -> int:
    if name not in inputs:
        inputs.append(name)
    return inputs.index(name)


def shape_of(g: Makes, x: str) -> tuple[int, ...]:
    return g.type(x)[1]


def same(g: Makes, x: str, options: str = "") -> str:
    dtype, shape = g.type(x)
    others = g.like(dtype, shape)
    return f"`{g.rng.choice(others)}`" if g.rng.random() < 0.7 else f"`{g.input(dtype, shape)}`"


def wide(g: Makes, x: str, options: str = "") -> str:
    """A value of a shape that broadcasts to that of x."""
    dtype, shape = g.type(x)
    if g.rng.random() < 0.5:
        return same(g, x)
    narrow = tuple(1 if g.rng.random() < 0.4 else n for n in shape)[g.rng.randint(0, len(shape)):]
    return f"`{g.input(dtype, narrow)}`"


def axis(g: Makes, x: str, options: str = "") -> str:
    n = len(shape_of(g, x))
    return str(g.rng.randrange(-n, n))


def axes(g: Makes, x: str, options: str = "") -> str:
    n = len(shape_of(g, x))
    if not n or g.rng.random() < 0.15:
        return "None"
    chosen = g.rng.sample(range(n), g.rng.randint(1, n))
    return str(chosen[0] if len(chosen) == 1 and g.rng.random() < 0.7 else tuple(k - n if g.rng.random() < 0.3 else k
                                                                                  for k in chosen))


def shape(g: Makes, x: str, options: str = "") -> str:
    """Another shape of as many elements."""
    sizes = list(shape_of(g, x))
    if g.rng.random() < 0.4 and len(sizes) > 1:
        k = g.rng.randrange(len(sizes) - 1)
        sizes[k:k + 2] = [sizes[k] * sizes[k + 1]]
    else:
        total, sizes = math.prod(sizes), []
        while total > 1 and len(sizes) < 3:
            n = g.rng.choice([d for d in range(1, min(total, 40) + 1) if total % d == 0])
            sizes.append(n)
            total //= n
        sizes.insert(g.rng.randint(0, len(sizes)), total)
    if sizes and all(sizes) and g.rng.random() < 0.3:
        sizes[g.rng.randrange(len(sizes))] = -1
    return str(tuple(sizes))


def key(g: Makes, x: str, options: str = "") -> str:
    """Ranges with steps, places, new axes."""
    parts = []
    for n in shape_of(g, x)[:g.rng.randint(1, 4)]:
        kind = g.rng.random()
        if kind < 0.15 and n:
            parts.append(str(g.rng.randrange(-n, n)))
        elif kind < 0.3:
            parts.append(":")
        else:
            start, stop = sorted((g.rng.randint(0, n), g.rng.randint(0, n)))
            step = g.rng.choice(["", "", ":2", ":3", ":-1", ":-2"])
            parts.append(f"::{step[1:]}" if "-" in step else
                         f"{start or ''}:{'' if g.rng.random() < 0.5 or stop == start else stop}{step}")
    if g.rng.random() < 0.1:
        parts.insert(g.rng.randint(0, len(parts)), "None")
    return ", ".join(parts)


def index(rank: int, along: int = 0) -> Writer:
    """Whole numbers that are places along an axis."""
    def write(g: Makes, x: str, options: str = "") -> str:
        size = shape_of(g, x)[along]
        shape = tuple(g.rng.choice((1, 2, 3, 5, 8)) for _ in range(rank or g.rng.randint(1, 2)))
        return f"(`{g.input('i64', shape, 'index')}` % {max(size, 1)})"
    return write


def window(rank: int) -> Writer:
    """kernel, stride, padding of a pooling."""
    def write(g: Makes, x: str, options: str = "") -> str:
        kernel = g.rng.randint(1, 4)
        return f"{kernel}, {g.rng.randint(1, 4)}, {g.rng.randint(0, kernel // 2)}"
    return write


def filters(kind: str) -> Writer:
    """Weights of a convolution of x."""
    def write(g: Makes, x: str, options: str = "") -> str:
        dtype, shape = g.type(x)
        kernel = tuple(g.rng.randint(1, 4) for _ in shape[2:])
        out = g.rng.choice((1, 2, 3, 5, 8))
        sizes = {"plain": (out, shape[1]), "transposed": (shape[1], out), "depthwise": (shape[1], 1)}[kind]
        return f"`{g.input(dtype, (*sizes, *kernel), 'normal')}`"
    return write


def right(g: Makes, x: str, options: str = "") -> str:
    dtype, shape = g.type(x)
    return f"`{g.input(dtype, (shape[-1], g.rng.choice((1, 2, 3, 5, 8, 17))))}`"


def last_weight(g: Makes, x: str, options: str = "") -> str:
    dtype, shape = g.type(x)
    return f"`{g.input(dtype, shape[-1:])}`"


def small(g: Makes, x: str, options: str = "") -> str:
    dtype, shape = g.type(x)
    return f"`{g.input(dtype, tuple(g.rng.randint(1, 3) for _ in shape))}`"


def pads(g: Makes, x: str, options: str = "") -> str:
    return str([(g.rng.randint(0, 2), g.rng.randint(0, 2)) for _ in shape_of(g, x)])


def perm(g: Makes, x: str, options: str = "") -> str:
    n = len(shape_of(g, x))
    return str(tuple(g.rng.sample(range(n), n)))


def reps(g: Makes, x: str, options: str = "") -> str:
    found = tuple(g.rng.choice((1, 1, 2, 2, 3)) for _ in shape_of(g, x))
    return str((2, *found) if g.rng.random() < 0.1 else found)


def word(g: Makes, x: str, options: str) -> str:
    return g.rng.choice(options.split(","))


def integer(g: Makes, x: str, options: str) -> str:
    low, high = map(int, options.split(","))
    return str(g.rng.randrange(low, high))


FIELDS: dict[str, Writer] = {
    "same": same, "wide": wide, "axis": axis, "axes": axes, "shape": shape, "key": key, "perm": perm, "reps": reps,
    "pads": pads, "word": word, "int": integer, "right": right, "last_weight": last_weight, "small": small,
    "index": index(0), "index1": index(1, 1), "flat_index": index(1), "window1": window(1), "window2": window(2),
    "filter": filters("plain"), "filter_t": filters("transposed"), "depthwise": filters("depthwise"),
    "num": lambda g, x, o: f"{g.rng.uniform(-2, 2):.2f}",
    "bool": lambda g, x, o: str(g.rng.random() < 0.5),
    "fn": lambda g, x, o: g.rng.choice(FUNCTIONS.strip().splitlines()),
    "new_axis": lambda g, x, o: str(g.rng.randint(-len(shape_of(g, x)) - 1, len(shape_of(g, x)))),
    "wider": lambda g, x, o: str((g.rng.choice((1, 2, 3, 5)), *shape_of(g, x))),
    "axis0": lambda g, x, o: "0", "last": lambda g, x, o: str(len(shape_of(g, x)) - 1),
    "nd": lambda g, x, o: str(len(shape_of(g, x)) - 2), "count": lambda g, x, o: str(g.rng.randint(1, len(shape_of(g, x)))),
    "dtype": lambda g, x, o: g.rng.choice(("float32", "float64", "int32", "int64", "bool")),
    "float": lambda g, x, o: g.rng.choice(("float32", "float64", "bfloat16", "float16")),
}


