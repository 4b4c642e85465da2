"""A public function of operators, called on tensors -> NumPy calls in a row, from the third equal call on.

    x[0], tn.stack([x, y], axis=1)          # what Python does to find out which operators these are is done once

Calls are equal where tensors have the same shapes and element types and everything else is the same plain data.  Where
a gradient is recorded, where a call is captured, batched or cast, or has arguments that are no plain data, the function
itself runs.  So it does where NumPy raises: it knows what to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tenon.autocast import autocasting
from tenon.dataclasses import dataclass
from tenon.eager.recipes import Recipe, recipe_of
from tenon.eager.recording import recording
from tenon.errors import OF_NUMPY, TenonError
from tenon.graph.build import Builder
from tenon.graph.ir import Value
from tenon.graph.kernels import KERNELS
from tenon.graph.op import using
from tenon.state import recorder
from tenon.tensor import Tensor, fresh
from tenon.types import DType, TensorType, as_dtype

Function = Callable[..., Any]
PLAIN = frozenset((bool, int, str, type(None), DType, type(Ellipsis)))      # equal where they compare so
MOST_CALLS = 8192


@dataclass(frozen=True, eq=False)
class Remembered:
    """A call: the recipe, and what is made of its results."""

    recipe: Recipe
    given: tuple[int | None, ...]       # the tensor that a result is, where it is one of those given
    kind: type | None                   # of the sequence of results; None for one tensor


_calls: dict[tuple[Any, ...], Remembered | bool] = {}      # True: seen once; False: has to be made in full


def remembered_call(function: Function, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """What the function returns."""
    tensors: list[Tensor] = []
    key: list[Any] = [function]
    if KERNELS or autocasting() is not None or recorder.get() is not None or not _describe(args, key, tensors) \
            or (keywords and not _describe(tuple(keywords.items()), key, tensors)):
        return function(*args, **keywords)
    known = _calls.get(call := tuple(key))
    if type(known) is not Remembered:
        result = function(*args, **keywords)
        if known is None and len(_calls) >= MOST_CALLS:
            _calls.clear()
        if known is not False:
            _calls[call] = True if known is None else _remember(function, args, keywords, tensors, result) or False
        return result
    try:
        arrays = known.recipe.run([x.own.payload for x in tensors])
    except (TenonError, *OF_NUMPY):
        return function(*args, **keywords)
    found = [fresh(a) if k is None else tensors[k] for a, k in zip(arrays, known.given, strict=True)]
    return found[0] if known.kind is None else known.kind(found)


def _describe(x: Any, key: list[Any], tensors: list[Tensor]) -> bool:
    """Add to the key of a call what an argument is, and its tensors to the list; False where there is no key."""
    kind = type(x)
    if kind in PLAIN:
        key += kind, x
    elif kind is float:
        key += kind, repr(x)                # 0.0 == -0.0
    elif kind is tuple or kind is list:
        key += kind, len(x)
        for part in x:
            if not _describe(part, key, tensors):
                return False
    elif kind is slice:
        key.append(kind)
        return all(_describe(end, key, tensors) for end in (x.start, x.stop, x.step))
    elif isinstance(x, Tensor):
        state = x.own
        array: Any = state.payload
        if type(array) is not np.ndarray or (state.requires_grad and recording()):
            return False
        key += array.dtype, array.shape
        tensors.append(x)
    else:
        return False
    return True


def _remember(function: Function, args: tuple[Any, ...], keywords: Mapping[str, Any], tensors: list[Tensor],
              result: Any) -> Remembered | None:
    """The call as a recipe; None where recording it shows anything but operators on these tensors."""
    builder = Builder(function.__name__, rewriting=True)
    params = [builder.parameter(TensorType(as_dtype(x.dtype), x.shape)) for x in tensors]
    rest = iter(params)
    try:
        with using(builder):
            out = function(*_with(args, rest), **dict(_with(tuple(keywords.items()), rest)))
    except Exception:           # it needs elements, or a state
        return None
    kind = type(out) if type(out) in (tuple, list) else None
    values, expected = (out, result) if kind else ([out], [result])
    if type(result) is not (kind or type(result)) or len(values) != len(expected):
        return None
    for value, tensor in zip(values, expected, strict=True):
        if not isinstance(value, Value) or type(tensor) is not Tensor or value.type != tensor.type:
            return None
    recipe = recipe_of(builder.finish(values))
    given = tuple(params.index(v) if v in params else None for v in values)
    return None if recipe is None else Remembered(recipe, given, kind)


def _with(x: Any, values: Any) -> Any:
    """The argument with one value after the other in the place of its tensors."""
    if isinstance(x, Tensor):
        return next(values)
    if type(x) in (tuple, list):
        return type(x)(_with(part, values) for part in x)
    return slice(*(_with(end, values) for end in (x.start, x.stop, x.step))) if type(x) is slice else x

