"""A seed -> a program: steps that the operators' own types and examples allow, found by running them.

Values are computed while the program is made, so each step fits the shapes and types that there are; a step that an
operator refuses is dropped, and so is one whose numbers leave the range in which roundings say anything.  Steps are
elementwise operators, examples of operators with other sizes, and phrases; of these each program uses some kinds only.
Seeds that follow each other take turns in an operator that is wanted, so a few hundred programs reach all of them.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any

import numpy as np

import tenon as tn
from fuzz.fields import written
from fuzz.phrases import TABLE
from fuzz.program import SCALAR, Input, Program, Shape, Step, trimmed
from fuzz.rounding import widened
from tenon.graph.op import OPS, Op
from tenon.graph.text import Example, attribute_text, parse_example
from tenon.ops.define import PUBLIC
from tenon.ops.placing import MOVES
from tenon.types import BY_SHORT, TensorType

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 17, 31, 33)
ODD_SIZES = (0, 1, 64, 67, 100, 128, 257)
TYPES = ("f32",) * 11 + ("f64", "f64", "bf16", "bf16", "bf16", "f16", "f16", "i64", "i32", "bool", "u8")
LAYOUTS = ("plain",) * 7 + ("turned", "spread", "reversed")
MOST = {"f16": 300.0, "bf16": 1e4, "f32": 1e4, "f64": 1e6, "c64": 1e4, "c128": 1e6}    # of a value that goes on
# Left out, each for its reason: what is decided by a choice of signs or of order, or lives in a run of its own.
PADDED = ("conv", "depthwise")      # whose padding may meet infinite weights, or be left out: docs/correctness.md
ASCENDING = ("searchsorted",)       # promise nothing where the rows of their first input do not ascend
LEFT_OUT = {"eig": "order and phases", "eigh": "signs", "svd": "signs", "qr": "signs", "lu": "order", "pinv": "rank",
            "lstsq": "rank", "empty_like": "no values", "nextafter": "of other types it is another number",
            "frexp": "of other types it is another number", "empty_stack": "lives in a run", "is_empty": "lives in a run",
            "push": "lives in a run", "pop": "lives in a run", "fused": "made by a pass", "call": "made by a capture",
            "custom_call": "the user's own", "with_sharding": "is there where meshes are"}


@dataclass(frozen=True)
class Phrase:
    kinds: str
    least: int
    most: int
    size: int
    text: str


class Refused(Exception):
    """The step cannot be made here."""


def generate(seed: int) -> Program:
    """The program of this seed."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        wanted = operators_with_examples()
        return Maker(random.Random(seed), wanted[seed % len(wanted)]).program()


class Maker:
    """Makes one program."""

    def __init__(self, rng: random.Random, wanted: Op):
        self.rng, self.wanted, self.shown = rng, wanted, ""
        self.dtype = rng.choice(TYPES[:18])
        self.special = rng.random() < 0.06
        self.big = rng.random() < 0.05
        # Some kinds of phrases only, and chains of some length: what few of many are rarely meets otherwise.
        self.weights = [weight * (rng.random() < 0.5) for weight, _ in TABLE]
        self.weights[rng.randrange(len(TABLE))] += 2
        self.plain, self.last = rng.choice((0.0, 0.1, 0.3)), rng.choice((0.5, 0.8, 1.0))
        self.inputs: list[Input] = []
        self.steps: list[Step] = []
        self.values: dict[str, Any] = {}            # eager tensors by name
        self.env: dict[str, Any] = {"tn": tn, "np": np, "OPS": OPS}

    # ------------------------------------------------------------ what the fields ask

    def type(self, name: str) -> tuple[str, Shape]:
        x = self.values[name]
        return x.dtype.short, tuple(x.shape)

    def like(self, dtype: str, shape: Shape) -> list[str]:
        return [name for name in self.values if self.type(name) == (dtype, shape)]

    def input(self, dtype: str, shape: Shape, values: str = "") -> str:
        """A new argument."""
        kinds = ("normal",) * 8 + ("whole", "whole", "positive") + ("special",) * (4 * self.special)
        made = Input(f"x{len(self.inputs)}", dtype, shape, values or self.rng.choice(kinds),
                     self.rng.randrange(10_000), self.rng.choice(LAYOUTS))
        if dtype[0] not in "fb" and made.values in ("special", "normal", "positive"):
            made = replace(made, values="whole")
        self.inputs.append(made)
        self.values[made.name] = self.env[made.name] = tn.asarray(made.array())
        return made.name

    # ------------------------------------------------------------ the program

    def program(self) -> Program:
        for _ in range(self.rng.randint(1, 2)):
            dtype = self.dtype if self.rng.random() < 0.8 else self.rng.choice(TYPES)
            self.input(dtype, self.shape())
        wanted = self.rng.choice((2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 10, 12))
        early = self.rng.choice((0, 0, 1, 2))
        for _ in range(3 * wanted):
            if len(self.steps) >= early and not self.shown:
                self.show()
            if len(self.steps) < wanted:
                self.attempt(self.step)
        return self.finished()

    def show(self) -> None:
        """A step by the operator that is wanted, if one of a few tries is allowed."""
        for _ in range(4):
            if self.attempt(lambda: self.example(self.wanted)):
                self.shown = self.steps[-1].targets[0]
                return
        self.shown = "nothing"

    def shape(self) -> Shape:
        most = 40_000 if self.big else 1500
        while True:
            rank = self.rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4, 4))
            sizes = [self.rng.choice(ODD_SIZES if self.rng.random() < 0.06 else SIZES) for _ in range(rank)]
            if self.big:
                sizes = [n * self.rng.choice((1, 4, 9)) for n in sizes]
            if np.prod(sizes, dtype=int) <= most:
                return tuple(sizes)

    def attempt(self, make: Callable[[], Step]) -> bool:
        """One more step, if what is tried is allowed."""
        inputs = len(self.inputs)
        try:
            self.run(make())
            return True
        except Exception:           # an operator refuses types or sizes: what was made for it goes again
            for made in self.inputs[inputs:]:
                del self.values[made.name], self.env[made.name]
            del self.inputs[inputs:]
            return False

    def step(self) -> Step:
        kind = self.rng.random()
        if kind < self.plain:
            return self.elementwise()
        return self.example(self.rng.choice(operators_with_examples())) if kind < self.plain + 0.12 else self.phrase()

    def some(self) -> str:
        """A value, of the last ones mostly."""
        names = list(self.values)
        return self.rng.choice(names[-self.rng.randint(1, 2):] if self.rng.random() < self.last else names)

    def target(self) -> str:
        return f"v{sum(len(step.targets) for step in self.steps)}"

    def run(self, step: Step) -> None:
        """Compute the step eagerly, with as many targets as it has results."""
        env = dict(self.env)
        exec("\n".join(step.lines), env)
        found = env[step.targets[0]]
        results = list(found) if isinstance(found, (tuple, list)) else [found]
        if not results or len(results) > 4 or not all(isinstance(x, tn.Tensor) for x in results):
            raise Refused
        if isinstance(found, (tuple, list)):
            base = int(step.targets[0][1:])
            step = replace(step, targets=tuple(f"v{base + k}" for k in range(len(results))),
                           template=step.template + "#tuple" * (len(results) == 1))
        for x in results:
            self.check(x)
        for name, x in zip(step.targets, results, strict=True):
            self.values[name] = self.env[name] = x
        self.steps.append(step)

    @property
    def most(self) -> int:
        """Elements of a value."""
        return 100_000 if self.big else 6000

    def check(self, x: Any) -> None:
        """Raise unless its numbers may go on."""
        if x.size > self.most:
            raise Refused
        if x.dtype.kind in "fc" and not self.special:
            array = np.abs(widened(x.detach().numpy()))
            if not np.isfinite(array).all() or array.max(initial=0) > MOST[x.dtype.short]:
                raise Refused

    # ------------------------------------------------------------ steps

    def phrase(self) -> Step:
        table = self.rng.choices(phrases(), self.weights)[0]
        x = self.some()
        dtype, shape = self.type(x)
        size = int(np.prod(shape, dtype=int))
        fits = [p for p in table if p.least <= len(shape) <= p.most and size <= p.size
                and ("a" in p.kinds or BY_SHORT[dtype].kind in p.kinds)]
        if not fits:
            raise Refused
        text, inputs = written(self, self.rng.choice(fits).text, x)
        return Step((self.target(),), text, tuple(inputs))

    def elementwise(self) -> Step:
        """Any operator that says that it is elementwise."""
        op = self.rng.choice(elementwise_operators())
        x = self.some()
        inputs = [x]
        for _ in op.signature.data[1:]:
            text = written(self, "{wide}" if self.rng.random() < 0.6 else "{same}", x)[1]
            inputs.append(text[-1])
        fitted = [self.into(f"{{{k}}}", name, domain(op, k)) for k, name in enumerate(inputs)]
        return Step((self.target(),), f"{called(op)}({', '.join(fitted)})", tuple(inputs))

    def into(self, text: str, name: str, interval: tuple[float, float] | None) -> str:
        """Brought into where an operator is defined."""
        if interval is None or self.special or self.type(name)[0] not in ("f16", "bf16", "f32", "f64"):
            return text
        low, high = interval
        return f"(tn.sigmoid({text}) * {high - low:.3g} + {low:.3g})"

    def example(self, op: Op) -> Step:
        """An operator of any kind, by one of its examples with other sizes."""
        example = self.resized(parse_example(self.rng.choice([e for e in op.examples if not e.endswith("error")])))
        inputs: list[str] = []
        parts = [self.given(example, k, inputs) for k in range(len(example.inputs))]
        parts += [f"{name}={attribute(value)}" for name, value in example.attrs.items()]
        return Step((self.target(),), f"{called(op)}({', '.join(parts)})", tuple(inputs))

    def given(self, example: Example, k: int, inputs: list[str]) -> str:
        """The text of one argument: a number, or a value of the type that is asked for."""
        wanted = example.inputs[k]
        if not isinstance(wanted, TensorType):
            return "None" if wanted is None else repr(wanted.value)
        low, high = domain(example.op, k) or (-2.0, 2.0)
        padded = example.op.name.startswith(PADDED) and k == 1
        name, text = (self.input(wanted.dtype.short, wanted.shape, "normal"), "{x}") if padded else (
            self.value_of(wanted, low >= 0))
        if name not in inputs:
            inputs.append(name)
        text = text.replace("{x}", f"{{{inputs.index(name)}}}")
        if wanted.dtype.kind == "i" and (low, high) != (-2.0, 2.0):
            return f"(tn.abs({text}) % {int(high) + 1})"
        return f"tn.sort({text})" if example.op.name in ASCENDING and k == 0 else self.into(text, name, domain(example.op, k))

    def value_of(self, wanted: TensorType, small: bool) -> tuple[str, str]:
        """A value of this type, or the last values brought into its form."""
        shape = tuple(int(n) for n in wanted.shape)
        size, dtype = int(np.prod(shape, dtype=int)), wanted.dtype.short
        there = self.like(dtype, shape)
        if there and self.rng.random() < 0.7:
            return self.rng.choice(there), "{x}"
        x = self.some()
        if dtype == self.type(x)[0] and self.values[x].size >= size > 0 and self.rng.random() < 0.7:
            return x, f"{{x}}.reshape(-1)[:{size}].reshape({shape})"
        return self.input(dtype, shape, "index" if dtype in ("i64", "i32", "u64") and not small else ""), "{x}"

    def resized(self, example: Example) -> Example:
        """The example with other sizes and of the program's type, if the operator allows them."""
        types = [t for t in example.inputs if isinstance(t, TensorType)]
        old = sorted({n for t in types for n in t.shape}, key=str)
        for _ in range(4):
            sizes = dict(zip(old, self.rng.sample(SIZES, len(old)), strict=True)) if len(old) <= len(SIZES) else {}
            dtype = BY_SHORT[self.dtype if self.dtype in ("f32", "f64", "bf16", "f16") else "f32"]
            inputs = tuple(TensorType(dtype if t.dtype.short == "f32" else t.dtype, tuple(sizes.get(n, n) for n in t.shape))
                           if isinstance(t, TensorType) else t for t in example.inputs)
            try:
                example.op.type(*(t if isinstance(t, TensorType) or t is None else t.type for t in inputs), **example.attrs)
            except Exception:
                continue
            return replace_inputs(example, inputs)
        return example

    # ------------------------------------------------------------ the end

    def finished(self) -> Program:
        made = [name for step in self.steps for name in step.targets]
        if not made:
            return Program(tuple(self.inputs), (), (self.inputs[0].name,))
        others = self.rng.sample(made[:-1], min(len(made) - 1, self.rng.choice((0, 1, 1, 2, 2, 3, 4))))
        outputs = tuple(dict.fromkeys([*others, made[-1]]))
        transform = self.rng.choices(("plain", "grad", "value_and_grad", "backward", "second", "jvp", "vmap", "vmap_grad"),
                                     (40, 18, 6, 8, 6, 6, 8, 4))[0]
        program = trimmed(Program(tuple(self.inputs), tuple(self.steps), outputs))
        if not self.shows(program):
            outputs = (self.shown, *outputs)
        program = trimmed(Program(tuple(self.inputs), tuple(self.steps), outputs))
        floats = tuple(name for name in outputs if self.values[name].dtype.is_floating)
        if transform != "plain" and transform != "vmap" and not (
                floats and any(x.dtype in ("f16", "bf16", "f32", "f64") for x in program.inputs)):
            transform = "plain"
        if transform in SCALAR and not self.shows(trimmed(replace(program, outputs=floats))):
            transform = "plain"
        if transform in SCALAR:
            outputs = floats
        program = trimmed(replace(program, outputs=outputs, floats=floats, transform=transform,
                                  batch=self.rng.choice((1, 2, 3, 5)) if transform.startswith("vmap") else 0))
        if not any(x.dtype in ("f16", "bf16", "f32", "f64") for x in program.inputs) and transform != "vmap":
            program = replace(program, transform="plain", batch=0)      # what is left has no gradients
        calls = tuple(self.other_shapes(program) for _ in range(2)) if self.rng.random() < 0.2 and not program.batch else ()
        again = (tuple(x.shape for x in program.inputs),) if self.rng.random() < 0.4 else ()     # by the same code
        return replace(program, calls=again + calls, again=self.rng.random() < 0.15)

    def shows(self, program: Program) -> bool:
        """Whether the operator that is wanted is part of it, if it could be made at all."""
        made = {name for step in self.steps for name in step.targets}
        return self.shown not in made or any(self.shown in step.targets for step in program.steps)

    def other_shapes(self, program: Program) -> tuple[Shape, ...]:
        """The shapes of another call: sizes that were equal stay equal; as before where they would become too many."""
        sizes = {n: n if n == 1 or self.rng.random() < 0.3 else self.rng.choice(SIZES) for x in program.inputs for n in x.shape}
        shapes = tuple(tuple(sizes[n] for n in x.shape) for x in program.inputs)
        return shapes if all(prod(shape) <= self.most for shape in shapes) else tuple(x.shape for x in program.inputs)


def replace_inputs(example: Example, inputs: tuple[Any, ...]) -> Example:
    return Example(example.op, inputs, example.attrs, example.outputs)


# ---------------------------------------------------------------- what there is

@cache
def phrases() -> list[list[Phrase]]:
    return [list(parsed(text)) for _, text in TABLE]


def parsed(text: str) -> Iterator[Phrase]:
    for line in text.strip().splitlines():
        spec, _, expression = line.partition(" | ")
        kinds, axes, *most = spec.split()
        least, _, highest = axes.partition("-")
        yield Phrase(kinds, int(least), int(highest), int(most[0]) if most else 10_000, expression.replace("\\n", "\n"))


def allowed(op: Op) -> bool:
    return op.is_own and not (op.effect or op.data_dependent or op.name in LEFT_OUT or op in MOVES)


@cache
def elementwise_operators() -> list[Op]:
    return [op for op in OPS.values() if op.elementwise and allowed(op) and not any(
        d is not None for d in op.signature.attrs.values())] or []


@cache
def operators_with_examples() -> list[Op]:
    return [op for op in OPS.values() if allowed(op) and any(not e.endswith("error") for e in op.examples)]


def called(op: Op) -> str:
    """How an operator is named in a program."""
    public = PUBLIC.get(op.name) is op and getattr(tn, op.name, None) is op
    return f"tn.{op.name}" if public else f'OPS["{op.name}"]'


def domain(op: Op, k: int) -> tuple[float, float] | None:
    """Where the data of an input lie."""
    if not op.domain:
        return None
    pairs = list(op.domain) if isinstance(op.domain[0], tuple) else [tuple(op.domain)]
    low, high = pairs[min(k, len(pairs) - 1)]
    return float(low), float(high)


def attribute(value: Any) -> str:
    """An attribute as Python says it: a type by its name."""
    text = attribute_text(value)
    return repr(text) if text in BY_SHORT else text
