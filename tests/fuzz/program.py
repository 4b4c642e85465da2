"""A random program, as data -> Python source that stands alone: what is judged, shrunk and kept.

    Program(inputs, steps, outputs, transform, calls)
    Input(name, dtype, shape, values, seed, layout)     an array, written as an expression of NumPy
    Step(targets, template, inputs)                     statements; `{0}` is the first input, `{t}` the first target

The source has a function `program` and a list `CALLS` of lists of arrays, and may say in which memory `BUDGET` it is
compiled.  Nothing else of a program is looked at, so that one written by hand is judged in the same way.
"""

from __future__ import annotations

import linecache
import re
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

import tenon as tn
from tenon.types import BY_SHORT

HEADER = "import ml_dtypes\nimport numpy as np\n\nimport tenon as tn\n"
OF_OPS = re.compile(r'OPS\["(\w+)"\]')
BUDGET = "BUDGET = 0\n"
INDENT = "    "
Shape = tuple[int, ...]

# What the elements of an input are.
VALUES = {
    "normal": "np.random.default_rng({seed}).standard_normal({shape})",
    "whole": "np.random.default_rng({seed}).integers(-2, 3, {shape})",
    "index": "np.random.default_rng({seed}).integers(0, 1000, {shape})",
    "positive": "np.random.default_rng({seed}).uniform(0.5, 2.0, {shape})",
    "special": "np.random.default_rng({seed}).choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.5, 2.0], {shape})",
    "zero": "np.zeros({shape})",
}
# How they lie in memory: (shape of what is made, what is taken of it).
LAYOUTS = {
    "plain": (lambda shape: shape, ""),
    "turned": (lambda shape: shape[::-1], ".T"),
    "spread": (lambda shape: (*shape[:-1], 2 * shape[-1]) if shape else (), "[..., ::2]"),
    "reversed": (lambda shape: shape, "[::-1]"),
}


@dataclass(frozen=True)
class Input:
    """One argument of the program."""

    name: str
    dtype: str
    shape: Shape
    values: str = "normal"
    seed: int = 0
    layout: str = "plain"

    @property
    def text(self) -> str:
        """The expression of NumPy that makes it."""
        base, taken = LAYOUTS[self.layout if self.shape else "plain"]
        made = VALUES[self.values].format(seed=self.seed, shape=base(self.shape))
        cast = {"bf16": "ml_dtypes.bfloat16", "bool": "bool"}.get(self.dtype, f"np.{BY_SHORT[self.dtype].name}")
        if self.dtype in ("bool", "u8", "u16", "u32", "u64") and self.values not in ("index", "zero"):
            made = f"np.abs({made})"
        return f"{'np.asarray(' if not self.shape else ''}{made}{')' if not self.shape else ''}.astype({cast}){taken}"

    def array(self) -> np.ndarray:
        found: np.ndarray = eval(self.text, {"np": np, "ml_dtypes": ml_dtypes})
        return found


@dataclass(frozen=True)
class Step:
    """Statements that make the targets of the inputs."""

    targets: tuple[str, ...]
    template: str
    inputs: tuple[str, ...]

    @cached_property
    def lines(self) -> list[str]:
        names = {"t": self.targets[0], "u": f"{self.targets[0]}_part"}
        text = self.template.format(*self.inputs, **names)
        left = ", ".join(self.targets) + ("," if self.template.endswith("#tuple") else "")
        return (text if "{t}" in self.template else f"{left} = {text.removesuffix('#tuple')}").split("\n")


@dataclass(frozen=True)
class Program:
    """A program; `calls` are the shapes of the inputs in each call, and `transform` what is made of the function."""

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    floats: tuple[str, ...] = ()        # the outputs that have gradients
    transform: str = "plain"
    batch: int = 0                      # of tn.vmap: the length of the axis in front of every input
    calls: tuple[tuple[Shape, ...], ...] = ()
    again: bool = False                 # computed again, whatever need not be kept: in a memory budget of nothing

    @cached_property
    def source(self) -> str:
        """The whole file."""
        calls = [self.inputs, *([replace(x, shape=shape, seed=x.seed + 100 * k) for x, shape in
                                 zip(self.inputs, shapes, strict=True)] for k, shapes in enumerate(self.calls, 1))]
        written = "".join(f"{INDENT}[{f',{chr(10)}{INDENT} '.join(self.batched(x).text for x in call)}],\n"
                          for call in calls)
        functions = chr(10).join(self.functions())
        header = HEADER + named_operators(functions)
        return f"{header}\n\n{OF_OPS.sub(own_name, functions)}\n\n\nCALLS = [\n{written}]\n{BUDGET * self.again}"

    def batched(self, x: Input) -> Input:
        return replace(x, shape=(self.batch, *x.shape)) if self.batch else x

    def functions(self) -> Iterator[str]:
        names = ", ".join(x.name for x in self.inputs)
        body = [INDENT + line for step in self.steps for line in step.lines]
        last = f"{INDENT}return {', '.join(self.outputs)}"
        if self.transform == "plain":
            yield "\n".join([f"def program({names}):", *body, last])
            return
        if self.transform in SCALAR:
            last = f"{INDENT}return " + " + ".join(f"tn.square({v}).sum()" for v in self.floats)
        yield "\n".join([f"def inner({names}):", *body, last]) + "\n\n"
        places = tuple(k for k, x in enumerate(self.inputs) if BY_SHORT[x.dtype].is_floating)
        moving = [self.inputs[k].name for k in places]
        yield TRANSFORMS[self.transform].format(
            names=names, places=places, moving=", ".join(moving) + ",", arguments=", ".join(moving),
            tangents="".join(f"tn.cos({x})," for x in moving))


SCALAR = ("grad", "value_and_grad", "second", "backward", "vmap_grad")
TRANSFORMS = {
    "grad": "def program({names}):\n    return tn.grad(inner, argnums={places})({names})",
    "value_and_grad": "def program({names}):\n    return tn.value_and_grad(inner, argnums={places})({names})",
    "second": "def slope({names}):\n"
              "    return sum(tn.square(g).sum() for g in tn.grad(inner, argnums={places})({names}))\n\n\n"
              "def program({names}):\n    return tn.grad(slope, argnums={places})({names})",
    "backward": "def program({names}):\n    {moving} = [x.detach().requires_grad_() for x in ({moving})]\n"
                "    inner({names}).backward()\n    return [x.grad for x in ({moving}) if x.grad is not None]",
    "jvp": "def program({names}):\n    return tn.jvp(lambda {arguments}: inner({names}), ({moving}), ({tangents}))",
    "vmap": "def program({names}):\n    return tn.vmap(inner)({names})",
    "vmap_grad": "def program({names}):\n    return tn.vmap(tn.grad(inner, argnums={places}))({names})",
}


def own_name(match: re.Match[str]) -> str:
    return f"op_{match[1]}"


def named_operators(functions: str) -> str:
    """Names for the operators that are not public; a capture looks at all that globals reach, so at these alone."""
    names = sorted(set(OF_OPS.findall(functions)))
    lines = [f'op_{name} = OPS["{name}"]\n' for name in names]
    return "".join(["from tenon.graph.op import OPS\n\n", *lines, "del OPS\n"]) if names else ""


def used(steps: Sequence[Step], outputs: Sequence[str]) -> tuple[list[Step], set[str]]:
    """The steps that the outputs need, and all names that are needed."""
    needed, kept = set(outputs), []
    for step in reversed(steps):
        if needed & set(step.targets):
            kept.append(step)
            needed |= set(step.inputs)
    return kept[::-1], needed


def trimmed(program: Program) -> Program:
    """The program without what its outputs do not need."""
    steps, needed = used(program.steps, program.outputs)
    kept = [k for k, x in enumerate(program.inputs) if x.name in needed]
    return replace(program, steps=tuple(steps), inputs=tuple(program.inputs[k] for k in kept),
                   calls=tuple(tuple(shapes[k] for k in kept) for shapes in program.calls))


def load(source: str, name: str) -> Any:
    """The module that a source is; `name` is its file, which need not exist."""
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    module = types.ModuleType("fuzzed")
    module.__file__ = name
    exec(compile(source, name, "exec"), vars(module))
    assert module.tn is tn
    return module
