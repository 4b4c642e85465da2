"""The gradient rules of operators as NumPy calls in a row, recorded once, without a tensor around each array.

What the rule of an elementwise operator asks for is found for inputs of one shape and element type, mostly one or two
of NumPy's ufuncs.  The rule of another operator is recorded for the types and attributes that it meets a second time,
as a recipe.  What neither shows (users' operators, graphs, elements that are looked at) is left to the rule itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.autodiff import pullback
from tenon.eager.call_table import GRADIENT, cached_calls, describe_attrs
from tenon.eager.recipes import Recipe, recipe_of
from tenon.errors import OF_NUMPY, Location, TenonError
from tenon.graph.build import Builder
from tenon.graph.ir import Literal, Value
from tenon.graph.op import Op, using
from tenon.ops.shape import cast, sum_to
from tenon.records import dataclass
from tenon.tensor import Tensor
from tenon.types import TensorType, as_dtype

Array = np.ndarray
MAX_RULES = 4096
TIMES = 2       # the call of a rule that is recorded
SHAPE = (7,)                                    # stands for any shape while an elementwise rule is recorded


# ---------------------------------------------------------------- of elementwise operators

@dataclass(frozen=True, eq=False)
class Formula:
    """The gradient of an input: numbers and calls of ufuncs in a row.

    Values are counted: the gradient of the output, the output, the inputs, and then what each of the rows gives.
    """

    rows: tuple[Array | tuple[np.ufunc, tuple[int, ...]], ...]
    result: int

    def __call__(self, values: list[Any]) -> Any:
        """The gradient, from the first of the values."""
        known = values.copy()
        for row in self.rows:
            known.append(row if type(row) is Array else row[0](*[known[place] for place in row[1]]))
        return known[self.result]


class ElementwiseRules(dict[Any, Any]):
    """(operator, element type, kinds of the inputs if not all are tensors) -> a formula an input, or None.

    Those that are found are `told` to whoever asks for that.
    """

    told: Callable[[Any, Any, Sequence[Any], Sequence[Formula | None]], None] | None = None

    def __missing__(self, key: Any) -> Any:
        if len(self) >= MAX_RULES:
            self.clear()
        op, dtype, *kinds = key
        kinds = kinds or [True] * getattr(op, "arity", 0)
        self[key] = rules = _recorded(op, dtype, kinds)
        if rules is not None and self.told is not None:
            self.told(op, dtype, kinds, rules)
        return rules


elementwise = ElementwiseRules()


def _recorded(op: Any, dtype: Any, kinds: Sequence[Any]) -> list[Formula | None] | None:
    """What the rule of an operator does, where ufuncs do it."""
    numbers = [x for x in kinds if isinstance(x, Literal)]
    if getattr(op, "quick", None) is None or op.vjp is None or dtype.kind != "f" or dtype.itemsize < 4:
        return None
    if not all(x is True or isinstance(x, Literal) for x in kinds) or any(not x.value for x in numbers):
        return None                             # 0.0 and -0.0 are equal keys
    type = TensorType(as_dtype(dtype), SHAPE)
    g, y = Value(type, name="g"), Value(type, name="y")
    inputs = [Value(type, name=f"x{k}") if x is True else x for k, x in enumerate(kinds)]
    builder = Builder("rule", [g, y, *(x for x in inputs if isinstance(x, Value))])
    with using(builder):
        found = [x() if callable(x) else x for x in op.vjp(g, y, *inputs)]
    places = {x: k for k, x in enumerate([g, y, *inputs]) if isinstance(x, Value)}
    rules = []
    for x, gradient in zip(inputs, found, strict=True):
        wanted = isinstance(x, Value) and gradient is not None
        rules.append(_formula(gradient, places, 2 + len(inputs), dtype) if wanted else None)
        if wanted and rules[-1] is None:
            return None
    return rules


def _formula(gradient: Any, places: Mapping[Value, int], first: int, dtype: Any) -> Formula | None:
    """The gradient as a function of the values at these places; None where it is more than ufuncs."""
    rows: list[Any] = []
    known = dict(places)

    def place_of(x: Any) -> int | None:
        place = known.get(x) if isinstance(x, Value) else None
        if place is None:
            row = np.asarray(x.value, dtype) if isinstance(x, Literal) else call_of(x)
            if row is None:
                return None
            rows.append(row)
            place = first + len(rows) - 1
            if isinstance(x, Value):
                known[x] = place
        return place

    def call_of(x: Value) -> tuple[np.ufunc, tuple[int, ...]] | None:
        node = x.node
        if node is None or not isinstance(node.op.ref, np.ufunc) or node.attrs or not node.op.elementwise:
            return None
        edges = [y for y in (*node.outputs, *node.inputs) if y is not None]
        if any(y.type.shape not in ((), SHAPE) or y.type.dtype.numpy is not dtype for y in edges):
            return None
        found = [place_of(y) for y in node.inputs]
        return None if None in found else (node.op.ref, tuple(found))   # type: ignore[arg-type]
    result = place_of(gradient)
    return None if result is None else Formula(tuple(rows), result)


# ---------------------------------------------------------------- of all others

@dataclass(frozen=True, eq=False)
class RecordedCall:
    """A recorded call whose values are those of a builder."""

    op: Op
    inputs: tuple[Any, ...]
    outputs: tuple[Value, ...]
    attrs: Mapping[str, Any]
    slots: tuple[Any, ...] = ()
    loc: Location | None = None



def pulled(node: Any, seeds: Sequence[Array | None]) -> list[tuple[Tensor, Array]] | None:
    """(an input, its gradient) for all that want one, given those of the outputs; None where there is no recipe."""
    arrays: list[Array] = []
    call = _key(node, seeds, arrays)
    if call is None:
        return None
    recipe = cached_calls.get(call)
    if type(recipe) is not Recipe:
        cached_calls.note(call, TIMES, lambda: _recipe(node, seeds))
        return None
    try:
        found = recipe.run(arrays)
    except (TenonError, *OF_NUMPY):
        return None                             # the rule itself says what is wrong
    return list(zip([x for x in node.inputs if _wants(x)], found, strict=True))


def _wants(x: Any) -> bool:
    return isinstance(x, Tensor) and x.own.requires_grad


def _key(node: Any, seeds: Sequence[Array | None], arrays: list[Array]) -> tuple[Any, ...] | None:
    """What a recipe is found by: operator, types, attributes, whose gradients there are, and whose are wanted.

    Fills `arrays` with the gradients, outputs and inputs.
    """
    key: list[Any] = [GRADIENT, node.op]
    for array in (*seeds, *node.payloads):
        if array is None:
            key.append(None)
        else:
            key += array.dtype, array.shape
            arrays.append(array)
    for x in node.inputs:
        if isinstance(x, Tensor):
            state = x.own
            payload: Any = state.payload
            if type(payload) is not Array:
                return None
            key += payload.dtype, payload.shape, state.requires_grad
            arrays.append(payload)
        else:
            key.append(x)
    return tuple(key) if describe_attrs(node.attrs, key) else None


def _recipe(node: Any, seeds: Sequence[Array | None]) -> Recipe | None:
    """The rule as a recipe from gradients, outputs and inputs; None where it does more than call operators."""
    op = node.op
    if not isinstance(op, Op) or not op.is_own:
        return None
    builder = Builder(op.name, rewriting=True)

    def parameter(array: Any) -> Value:
        return builder.parameter(TensorType(as_dtype(array.dtype), array.shape))
    gradients = [None if g is None else parameter(g) for g in seeds]
    outputs = tuple(map(parameter, node.payloads))
    inputs = tuple(parameter(x.own.payload) if isinstance(x, Tensor) else x for x in node.inputs)
    try:
        with using(builder):
            found = pullback(RecordedCall(op, inputs, outputs, node.attrs), gradients)
            results = [alike(g, value) for g, value, x in zip(found, inputs, node.inputs, strict=True) if _wants(x)]
    except Exception:           # it needs elements, or a state
        return None
    return recipe_of(builder.finish(results)) if all(isinstance(x, Value) for x in results) else None


def alike(gradient: Any, x: Any) -> Any:
    """A gradient in the shape and element type of what it is the gradient of."""
    value = gradient() if callable(gradient) else gradient
    if value is None or x.is_like(value):
        return value
    value = sum_to(value, x.shape)
    return value if value.dtype is x.dtype else cast(value, dtype=x.dtype)
