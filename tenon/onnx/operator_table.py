"""The table of ONNX operators, and what a definition is told about the node that it stands for.

    @operator("Concat", moves=True)
    def concat(call, *xs):
        return tn.concat(xs, axis=call.get("axis", 1))

`known` names inputs whose elements have to be known, as sizes are: they come as arrays.  All others come as tensors.
`host=True` gives all of them as arrays, `raw=True` as values.  An operator that `moves` takes elements of any type.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tenon as tn
from tenon.errors import TenonError
from tenon.onnx.known_values import (
    MAX_FOLDED,
    Known,
    TooLargeError,
    UnsupportedError,
    as_tensor,
    as_value,
    at_most,
    host,
    is_known,
    known_bytes,
    moved,
    outside,
    settled,
)
from tenon.records import dataclass

ONNX, ML, PREVIEW = "", "ai.onnx.ml", "ai.onnx.preview"
TRAINING = "ai.onnx.preview.training"


@dataclass(eq=False)
class OperatorCall:
    """A node that is evaluated: its attributes, the version of its opset, and what surrounds it."""

    step: Any               # the step of a plan
    attributes: dict[str, Any]
    opset: int
    scope: Any

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        found = self.attributes.get(name)
        return default if found is None else found

    def need(self, name: str) -> Any:
        """An attribute that has no default."""
        if self.attributes.get(name) is None:
            raise TenonError(f"{self.step.label}: the attribute {name!r} is missing")
        return self.attributes[name]

    @property
    def results(self) -> int:
        """How many results the node names."""
        return len(self.step.outputs)

    def unsupported(self, what: str) -> UnsupportedError:
        """The error that says what of this node is not supported."""
        return UnsupportedError(f"{self.step.op_type} of opset {self.opset} is not supported: {what} "
                                f"(node {self.step.name or self.step.outputs!r})")


Definition = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Operator:
    """One ONNX operator: its name, and the function that says what it is in Tenon."""

    name: str
    domain: str
    run: Definition
    known: frozenset[int]
    host: bool
    raw: bool
    moves: bool
    random: bool
    late: bool = False      # not to be evaluated as the model is loaded: it has sub-graphs

    def __call__(self, call: OperatorCall, args: list[Any]) -> Any:
        """The values of the node's results."""
        if self.raw:
            return self.run(call, *args)
        if not self.random and all(map(is_known, args)) and sum(map(known_bytes, args)) <= MAX_FOLDED:
            try:
                with outside(), at_most(MAX_FOLDED):
                    return self._settled(self._run(call, args))
            except TooLargeError:
                pass
        return self._run(call, args)

    def _run(self, call: OperatorCall, args: list[Any]) -> Any:
        strange = [k for k, x in enumerate(args) if isinstance(x, Known) and not x.is_regular and k not in self.known]
        if self.host:
            return self.run(call, *[_arrays(x) for x in args])
        if strange and self.moves:
            def move(*tensors: Any) -> Any:
                given = dict(zip(strange, tensors, strict=True))
                return self._of_tensors(call, [given.get(k, x) for k, x in enumerate(args)])
            return moved(move, [args[k].array for k in strange])
        if strange:
            x = args[strange[0]]
            raise call.unsupported(f"an input of type {'string' if x.array.dtype.kind in 'OUS' else x.array.dtype}")
        return self._of_tensors(call, args)

    def _of_tensors(self, call: OperatorCall, args: list[Any]) -> Any:
        return self.run(call, *[host(x) if k in self.known else _tensors(x) for k, x in enumerate(args)])

    def _settled(self, results: Any) -> Any:
        if isinstance(results, tuple):
            return tuple(settled(as_value(x)) for x in results)
        return settled(as_value(results))


def _arrays(x: Any) -> Any:
    return [host(y) for y in x] if isinstance(x, list) else host(x)


def _tensors(x: Any) -> Any:
    return [as_tensor(y) for y in x] if isinstance(x, list) else as_tensor(x)


TABLE: dict[tuple[str, str], Operator] = {}


def operator(name: str, domain: str = ONNX, known: str = "", host: bool = False, raw: bool = False,
             moves: bool = False, random: bool = False, late: bool = False) -> Callable[[Definition], Definition]:
    """Enter a function in the table as what `name` is in Tenon."""
    def enter(run: Definition) -> Definition:
        names = list(inspect.signature(run).parameters)[1:]
        places = frozenset(names.index(n) for n in known.split())
        TABLE[domain, name] = Operator(name, domain, run, places, host, raw, moves, random, late)
        return run
    return enter


def plain(name: str, function: Callable[..., Any]) -> None:
    """Enter an operator that is one of Tenon's, with no attributes."""
    def run(call: OperatorCall, *args: Any) -> Any:
        return function(*args)
    TABLE[ONNX, name] = Operator(name, ONNX, run, frozenset(), False, False, False, False)


def axis_of(axis: int, x: tn.Tensor, call: OperatorCall) -> int:
    """An axis counted from the front."""
    if not -x.ndim <= axis < max(x.ndim, 1):
        raise TenonError(f"{call.step.label}: axis {axis} is not one of {x.ndim}")
    return axis + x.ndim if axis < 0 else axis
