"""Functions of PyTorch's top level that have another name here, or are methods: `tn.relu_(x)`, `tn.igamma(a, x)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.autograd import set_detect_anomaly
from tenon.jit import jit
from tenon.nn.module import Module
from tenon.ops.comparison import where
from tenon.ops.cumulative import trapezoid as trapz
from tenon.ops.rejection_sampling import random_binomial
from tenon.ops.solving import matrix_norm, pinv
from tenon.ops.vector_products import multi_dot
from tenon.ops.vector_products import outer as ger
from tenon.pytorch_in_place import FUNCTIONS, METHODS_IN_PLACE
from tenon.pytorch_methods import (
    adjoint,
    get_device,
    igamma,
    igammac,
    is_nonzero,
    is_same_size,
    is_signed,
    msort,
    narrow_copy,
)
from tenon.random import Generator, default_generator
from tenon.tensor import Tensor, asarray, tensor
from tenon.types import as_dtype, broadcast_shapes, promote_types

pinverse = pinv


__all__ = ["OptimizedModule", "adjoint", "are_deterministic_algorithms_enabled", "binomial", "chain_matmul", "compile",
           "detach", "fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine",
           "fill", "frobenius_norm", "frombuffer", "ger", "get_default_device", "get_device",
           "get_float32_matmul_precision", "histogram", "igamma", "igammac", "is_conj", "is_distributed",
           "is_inference", "is_neg", "is_nonzero", "is_same_size", "is_signed", "msort", "narrow_copy",
           "norm_except_dim", "nuclear_norm", "pinverse", "promote_types", "resolve_conj", "resolve_neg",
           "rsub", "seed", "set_anomaly_enabled",
           "t", "trapz"]


# ---------------------------------------------------------------- compiling

class OptimizedModule(Module):
    """What `tn.compile` makes of a module: the module, whose calls are compiled, under the name `_orig_mod`."""

    def __init__(self, module: Module, **options: Any):
        self._orig_mod = module
        self.__dict__["_call"] = jit(module, **options)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        return self._call(*inputs, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_orig_mod" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["_orig_mod"], name)


def compile(model: Any = None, *, fullgraph: Any = False, dynamic: Any = None, backend: Any = None, mode: Any = None,
            options: Any = None, disable: Any = False) -> Any:
    """`tn.jit` by PyTorch's name; of a module a module.  There is one backend and one mode, sizes are as they come.

    >>> net = tn.compile(nn.Linear(3, 2))
    >>> net(tn.ones(5, 3)).shape, len(list(net.parameters()))
    ((5, 2), 2)
    """
    if model is None:
        return lambda model: compile(model, fullgraph=fullgraph, disable=disable)
    if disable:
        return model
    return OptimizedModule(model, fullgraph=fullgraph) if isinstance(model, Module) else jit(model, fullgraph=fullgraph)


# ---------------------------------------------------------------- methods as functions

def _function(name: str) -> Callable[..., Any]:
    method = METHODS_IN_PLACE[name]

    def function(input: Any, *args: Any, **named: Any) -> Any:
        return method(input, *args, **named)
    function.__name__, function.__doc__ = name, f"`input.{name}(...)`."
    return function


globals().update({name: _function(name) for name in FUNCTIONS})


def __getattr__(name: str) -> Any:              # where type checkers find functions that are made in a loop: relu_
    raise AttributeError(name)


def foreach(name: str) -> Callable[..., Any]:
    """`_foreach_add_` and its kin: a method of every tensor of a list, with the items of other lists beside it."""
    method = name.removeprefix("_foreach_")

    def function(tensors: Any, *args: Any, **named: Any) -> Any:
        if method.startswith("addc"):       # a fourth argument is the numbers that products are multiplied by
            args, named = args[:2], dict(zip(["value"], args[2:], strict=False)) | named
        each = [[x[k] if isinstance(x, (list, tuple)) else x for k in range(len(tensors))]
                for x in (*args, *named.values())]
        found = [getattr(x, method)(*given[:len(args)], **dict(zip(named, given[len(args):], strict=True)))
                 for x, *given in zip(tensors, *each, strict=True)]
        return None if name.endswith("_") else tuple(found)
    return function


def detach(input: Any) -> Any:
    """The same elements, cut off from what they were computed from."""
    return input.detach()


def t(input: Any) -> Any:
    """A matrix transposed; a vector as it is."""
    return input.t()


def fill(input: Any, value: Any) -> Any:
    """A tensor like this one, of `value` everywhere."""
    return METHODS_IN_PLACE["fill_"](input.clone(), value)


def is_conj(input: Any) -> Any:
    """False: conjugates are computed at once."""
    return False


is_neg = is_inference = is_distributed = is_conj


def resolve_conj(input: Any) -> Any:
    """The tensor: nothing is put off."""
    return input


resolve_neg = resolve_conj


def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """`other - alpha * input`."""
    return other - alpha * input


def chain_matmul(*matrices: Any) -> Any:
    """The product of matrices, in the order that is cheapest."""
    return multi_dot(matrices)


def nuclear_norm(input: Any, dim: Any = (-2, -1), keepdim: Any = False) -> Any:
    """The sum of the singular values of matrices."""
    return matrix_norm(input, "nuc", dim, keepdim)


def frobenius_norm(input: Any, dim: Any = (-2, -1), keepdim: Any = False) -> Any:
    """The square root of the sum of squares along axes."""
    return (input.abs() ** 2).sum(axis=dim, keepdims=keepdim).sqrt()


def norm_except_dim(v: Any, pow: Any = 2, dim: Any = 0) -> Any:
    """The norm over all axes but one, which are kept with size 1; over all axes for -1."""
    axes = [axis for axis in range(v.ndim) if axis != dim % v.ndim] if dim != -1 else None
    return (v.abs() ** pow).sum(axis=axes, keepdims=dim != -1) ** (1 / pow)


def histogram(input: Any, bins: Any = 100, *, range: Any = None, weight: Any = None, density: Any = False) -> Any:
    """(how many elements are in each of the bins, or their weights; the bins' edges)."""
    weights = None if weight is None else weight.numpy().reshape(-1)
    edges = bins.numpy() if isinstance(bins, Tensor) else bins
    found, edges = np.histogram(input.detach().numpy().reshape(-1), edges, range, density, weights)
    return tensor(found, dtype=input.dtype), tensor(edges, dtype=input.dtype)


def fake_quantize_per_tensor_affine(input: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Any:
    """What is left of numbers that are kept as whole ones, `scale` apart; the gradient goes through where they fit.

    >>> tn.fake_quantize_per_tensor_affine(tn.tensor([0.26, 30.0]), 0.1, 0, 0, 255)
    tensor([ 0.3, 25.5])
    """
    whole = (input.detach() * (1 / scale)).round() + zero_point
    fits = (whole >= quant_min) & (whole <= quant_max)
    kept = (whole.nan_to_num(quant_min).clip(quant_min, quant_max) - zero_point) * scale
    return kept.astype(input.dtype) + where(fits, input - input.detach(), 0)


def fake_quantize_per_channel_affine(input: Any, scale: Any, zero_point: Any, axis: int, quant_min: int,
                                     quant_max: int) -> Any:
    """The same with a scale and a zero point for each position of an axis."""
    shape = [-1 if k == axis % input.ndim else 1 for k in range(input.ndim)]
    return fake_quantize_per_tensor_affine(input, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max)


def binomial(count: Any, prob: Any, generator: Generator | None = None) -> Tensor:
    """How many of `count` trials succeed, with probability `prob` each."""
    shape = broadcast_shapes(count.shape, prob.shape)
    source = generator or default_generator
    return source.draw(lambda state: random_binomial(state, count, prob, shape=shape))


def frombuffer(buffer: Any, *, dtype: Any, count: Any = -1, offset: Any = 0, requires_grad: Any = False) -> Tensor:
    """A vector of the memory of an object: bytes, an array of Python's."""
    found = asarray(np.frombuffer(buffer, as_dtype(dtype).numpy, count, offset))
    return found.requires_grad_() if requires_grad else found


def seed() -> Any:
    """Start the default generator again from a seed that nobody knows; returns it."""
    return default_generator.seed()


def get_default_device() -> Any:
    """Where tensors are made: on the CPU."""
    return tensor(0.0).device


def get_float32_matmul_precision() -> Any:
    """"highest": products of float32 are computed in float32."""
    return "highest"


def are_deterministic_algorithms_enabled() -> Any:
    """True: all of them are deterministic."""
    return True


def set_anomaly_enabled(mode: Any, check_nan: Any = True) -> None:
    """`tn.autograd.set_detect_anomaly`."""
    set_detect_anomaly(mode, check_nan)
