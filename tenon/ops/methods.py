"""Operator definitions -> methods and Python operators of every tensor and value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.errors import ShapeError
from tenon.graph import op as calls
from tenon.graph.op import Op, current
from tenon.graph.operators import Operators, install
from tenon.migration_hints import TENSOR, AbsentField
from tenon.ops.bit_views import view
from tenon.ops.define import PUBLIC
from tenon.ops.numpy_calls import array_function, array_ufunc
from tenon.types import DType, bfloat16, bool_, float16, float32, float64, int32, int64

PYTHON_OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}
COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
PROPERTIES = ("real", "imag")       # without parentheses, as in NumPy and PyTorch
NAMED_TYPES = {"float": float32, "half": float16, "bfloat16": bfloat16, "double": float64, "int": int32, "long": int64,
               "bool": bool_}
UNARY = {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "bitwise_invert"}


def install_methods() -> None:
    """Give tensors and values a method for the public operators that are methods, and Python's operators."""
    methods: dict[str, Any] = {}
    for name, operator in PUBLIC.items():
        if is_method(operator):
            methods[name] = property(operator) if name in PROPERTIES else _method(operator)
    for python, name in (PYTHON_OPERATORS | COMPARISONS).items():
        if name in PUBLIC:
            methods[f"__{python}__"] = _method(PUBLIC[name])
    for python, name in PYTHON_OPERATORS.items():
        if name in PUBLIC:
            methods[f"__r{python}__"] = _reflected(PUBLIC[name])
    methods.update({f"__{python}__": _method(PUBLIC[name]) for python, name in UNARY.items() if name in PUBLIC})
    methods["__getitem__"] = _method(PUBLIC["getitem"])
    methods.update({name: _to(name, dtype) for name, dtype in NAMED_TYPES.items()})
    methods.update(__array_ufunc__=array_ufunc, __array_function__=array_function)
    methods.update(view=_method(view), dim=_dim, numel=_numel, t=_t, contiguous=_contiguous,
                   clone=_clone)
    layers = {name: f"tn.{name}(x, ...)" for name, call in PUBLIC.items() if not getattr(call, "method", True)}
    install({name: AbsentField(name, hint) for name, hint in (TENSOR | layers).items()} | methods)


# What users of PyTorch write; tensors are values, so that a view is one under another shape, and all are contiguous.

def _to(name: str, dtype: DType) -> Callable[..., Any]:
    def method(self: Any, memory_format: Any = None) -> Any:
        return self.astype(dtype)
    method.__name__, method.__doc__ = name, f"The elements converted to {dtype.name}."
    return method


def _clone(self: Any, *, memory_format: Any = None) -> Any:
    """The same elements, which belong to nobody else."""
    return PUBLIC["clone"](self)


def _dim(self: Any) -> Any:
    """The number of axes: `ndim`."""
    return self.ndim


def _numel(self: Any) -> Any:
    """The number of elements: `size`."""
    return self.size


def _t(self: Any) -> Any:
    """A matrix with its axes swapped; a vector or scalar as it is."""
    if self.ndim > 2:
        raise ShapeError(f"t: a tensor of at most two axes was expected, this one is {self.type}", hint="x.mT, x.T")
    return self.swapaxes(0, 1) if self.ndim == 2 else self


def _contiguous(self: Any, memory_format: Any = None) -> Any:
    """The tensor itself."""
    return self


def short_methods() -> dict[str, Op]:
    """Python's operators that are one of ours and nothing else, by the name of the method."""
    binary = {f"__{python}__": name for python, name in (PYTHON_OPERATORS | COMPARISONS).items()}
    unary = {f"__{python}__": name for python, name in UNARY.items()}
    return _operators(binary | unary)


def reflected_methods() -> dict[str, Op]:
    """The same with their inputs exchanged: `__radd__`."""
    return _operators({f"__r{python}__": name for python, name in PYTHON_OPERATORS.items()})


def _operators(names: dict[str, str]) -> dict[str, Op]:
    found = {method: PUBLIC.get(name) for method, name in names.items()}
    return {method: op for method, op in found.items() if isinstance(op, Op)}


def called_methods() -> dict[str, tuple[Any, Callable[..., Any]]]:
    """What the methods with a name call, as calls are remembered, and the method: `x.sum()`, `x[0]`."""
    found = {name: call for name, call in PUBLIC.items() if is_method(call) and name not in PROPERTIES}
    found |= {"__getitem__": PUBLIC["getitem"], "view": view}
    return {name: (getattr(call, "__wrapped__", call), vars(Operators)[name]) for name, call in found.items()
            if hasattr(call, "full")}


def is_method(operator: Callable[..., Any]) -> bool:
    """Whether a public operator is a method of tensors too."""
    return first_parameter(operator) == "x" and getattr(operator, "method", True)


def first_parameter(operator: Callable[..., Any]) -> str | None:
    """The name of the first parameter of a public operator."""
    if isinstance(operator, Op):
        return operator.signature.data[0] if operator.signature.data else None
    code = getattr(operator, "__wrapped__", operator).__code__     # inspect.signature takes a tenth of the import
    return code.co_varnames[0] if code.co_argcount else None


def _method(operator: Callable[..., Any]) -> Callable[..., Any]:
    full, target = getattr(operator, "full", None), getattr(operator, "__wrapped__", operator)

    def method(self: Any, *args: Any, **keywords: Any) -> Any:
        if full is None or current() is not None:
            return operator(self, *args, **keywords)
        return calls.cached_call(target, full, (self, *args), keywords)       # as `operator` would, in one step less
    method.__name__, method.__doc__ = operator.__name__, operator.__doc__
    return method


def _reflected(operator: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        return operator(other, self)
    method.__name__ = operator.__name__
    return method
