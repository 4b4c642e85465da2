"""NumPy's functions and ufuncs, called with tensors -> the operators of the same meaning, with their gradients.

    np.sin(x), np.add(a, x), np.mean(x, axis=0), np.concatenate([x, y])     # tensors, recorded like any operator
    np.add.reduce(x), np.multiply.outer(x, y)                               # x.sum(axis=0), and so on

What has no operator of its own runs in NumPy and gives NumPy's result, as long as nothing is lost by that: a tensor
that requires a gradient, or is being captured, is refused with what to write.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from tenon.errors import GradientError
from tenon.graph.operators import Operators
from tenon.ops import fourier, solving
from tenon.ops.decompositions import mirrored
from tenon.ops.define import PUBLIC
from tenon.ops.diagonal import diagonal
from tenon.ops.masked_reductions import KEYWORDS

# Parameters of NumPy's functions that are data: passed on in their order, whatever they are called there.
OPERANDS = frozenset((
    "a", "b", "x", "y", "x1", "x2", "A", "m", "v", "z", "f", "ar", "ary", "arr", "arrays", "tup", "val", "array",
    "prototype", "element", "test_elements", "condition", "a1", "a2", "indices"))
OURS = frozenset(("x", "y", "values", "indices", "condition"))      # parameters of ours that are data, beside the first
JOINED = frozenset(("arrays", "tup"))       # lists of them
RENAMED = {"ddof": "correction", "a_min": "min", "a_max": "max", "indices_or_sections": "sections"}
BY_POSITION = {"tile": "reps", "transpose": "axes"}     # `*reps` in ours
ELSEWHERE = frozenset(("put", "gradient", "unique", "allclose", "array_equal"))   # mean or give another thing
# What gives no elements away: no gradient is lost.
HARMLESS = frozenset((
    "shape", "ndim", "size", "result_type", "can_cast", "min_scalar_type", "common_type", "iscomplexobj", "isrealobj",
    "array_repr", "array_str", "array2string", "save", "savez", "savez_compressed", "savetxt", "shares_memory",
    "may_share_memory", "allclose", "array_equal", "zeros_like", "ones_like", "full_like", "empty_like"))
FLATTENED = (np.sort, np.argsort)       # by axis=None, which is no axis of ours
REDUCED = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all",
           "logical_or": "any"}
ACCUMULATED = {"add": "cumsum", "multiply": "cumprod", "maximum": "cummax", "minimum": "cummin"}


def array_ufunc(self: Any, ufunc: np.ufunc, method: str, *inputs: Any, out: tuple[Any, ...] | None = None,
                **named: Any) -> Any:
    """`ufunc.method(*inputs, **named)`, as NumPy asks whoever is among the inputs."""
    if out is not None and len(out) == 1 and isinstance(out[0], Operators):
        written: Any = out[0]
        return written.assign(getattr(ufunc, method)(*inputs, **named))
    if out is not None and any(y is not None for y in out):
        return _in_numpy(f"np.{ufunc.__name__}", getattr(ufunc, method), inputs, {**named, "out": out})
    inputs, found = tuple(map(_operand, inputs)), None
    if method == "__call__":
        operator = PUBLIC.get(ufunc.__name__)
        found = None if operator is None or set(named) - {"dtype"} else operator(*inputs)
    elif method == "reduce" and ufunc.__name__ in REDUCED and not set(named) - {"axis", "keepdims", *KEYWORDS}:
        found = PUBLIC[REDUCED[ufunc.__name__]](inputs[0], **{"axis": 0, **named})
    elif method == "accumulate" and ufunc.__name__ in ACCUMULATED and not set(named) - {"axis"}:
        found = PUBLIC[ACCUMULATED[ufunc.__name__]](inputs[0], **{"axis": 0, **named})
    elif method == "outer" and ufunc.__name__ in PUBLIC and not named:
        x, y = map(PUBLIC["positive"], inputs)
        found = PUBLIC[ufunc.__name__](x.reshape(*x.shape, *(1,) * y.ndim), y)
    if found is None:
        return _in_numpy(f"np.{ufunc.__name__}", getattr(ufunc, method), inputs, named)
    return found if named.get("dtype") is None else found.astype(named["dtype"])


def array_function(self: Any, function: Any, types: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """`function(*args, **named)` of NumPy, as it asks whoever is among the arguments."""
    if function is np.where and len(args) == 1:
        return PUBLIC["nonzero"](args[0])
    if function is np.select:
        return PUBLIC["select"](*_parameters(function).bind(*args, **named).arguments.values())
    operator = _operator_of(function)
    call = None if operator is None else _translated(function, operator, args, named)
    if operator is None or call is None:
        module = function.__module__.replace("numpy", "np", 1)
        return _in_numpy(f"{module}.{function.__name__}", function, args, named)
    return operator(*call[0], **call[1])


@cache
def _operator_of(function: Any) -> Callable[..., Any] | None:
    """The public operator that means what the function of NumPy means."""
    module, name = function.__module__, function.__name__
    if module == "numpy.linalg":
        return MATRICES.get(name) or PUBLIC.get(name) or getattr(solving, name, None)
    if module == "numpy.fft":
        return getattr(fourier, name, None)
    return PUBLIC.get(name) if name not in ELSEWHERE else None


def _norm(x: Any, ord: Any = 2.0, axis: Any = None, keepdims: bool = False) -> Any:
    return PUBLIC["norm"](x, ord, axis, keepdims)


def _diagonals(x: Any, offset: int = 0) -> Any:
    return diagonal(x, offset, -2, -1)


def _traces(x: Any, offset: int = 0) -> Any:
    return _diagonals(x, offset).sum(axis=-1)


def _eigh(x: Any, UPLO: str = "L") -> Any:
    return PUBLIC["eigh"](x, UPLO)


def _eigvalsh(x: Any, UPLO: str = "L") -> Any:
    return PUBLIC["eigvalsh"](x, UPLO)


def _cholesky(x: Any, upper: bool = False) -> Any:
    return PUBLIC["cholesky"](mirrored(PUBLIC["positive"](x), "U" if upper else "L"), upper)


# Of a matrix that is to be symmetric NumPy reads one triangle.
MATRICES: dict[str, Callable[..., Any]] = {"norm": _norm, "diagonal": _diagonals, "trace": _traces, "eigh": _eigh,
                                           "eigvalsh": _eigvalsh, "cholesky": _cholesky}


def _operand(x: Any) -> Any:
    """Lists of numbers are arrays to NumPy."""
    return np.asarray(x) if isinstance(x, (list, tuple)) and not any(isinstance(k, Operators) for k in x) else x


def _translated(function: Any, operator: Callable[..., Any], args: tuple[Any, ...],
                named: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]] | None:
    """The same call of the operator; None where it has no such arguments."""
    theirs, ours = _parameters(function), _parameters(operator)
    data: list[Any] = []
    options: dict[str, Any] = {}
    for name, value in theirs.bind(*args, **named).arguments.items():
        parameter = theirs.parameters[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            data += map(_operand, value)
        elif parameter.kind is parameter.VAR_KEYWORD:
            options |= value
        elif name in OPERANDS:
            if data and not set(list(ours.parameters)[len(data):len(data) + 1]) & OURS:
                return None         # as the second set of observations of `cov`
            data.append(value if name in JOINED else _operand(value))
        elif value is parameter.default or (value is None and name in ("out", "dtype", "kind", "order")):
            continue
        elif BY_POSITION.get(function.__name__) == name:
            data += [] if value is None else [value]
        elif (own := RENAMED.get(name, name)) in ours.parameters:
            options[own] = value
        else:
            return None
    if not set(options) <= set(ours.parameters) or (options.get("axis", 0) is None and function in FLATTENED):
        return None
    if any(isinstance(x, np.ndarray) and x.dtype.kind not in "biufcV" for x in data):
        return None         # text, dates and objects are NumPy's
    if operator is _norm and "ord" in options and not isinstance(options.get("axis"), int):
        return None         # of matrices, in NumPy
    return data, options


@cache
def _parameters(function: Any) -> inspect.Signature:
    return inspect.signature(function)


def _in_numpy(name: str, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """What NumPy makes of the elements; raises GradientError where a gradient would be lost on the way."""
    short = name.rpartition(".")[2]

    def plain(x: Any) -> Any:
        if isinstance(x, Operators):
            if getattr(x, "requires_grad", False) and short not in HARMLESS:
                raise GradientError(f"{name}: NumPy knows no gradients, and Tenon has no such operator",
                                    hint=f"{name}(x.detach().numpy()) lets go of the gradient")
            return np.asarray(x)
        if isinstance(x, (list, tuple)):
            return type(x)(map(plain, x)) if type(x) in (list, tuple) else x
        return {k: plain(v) for k, v in x.items()} if type(x) is dict else x
    return getattr(function, "_implementation", function)(*plain(list(args)), **plain(dict(named)))
