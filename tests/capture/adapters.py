"""Libraries as systems that capture programs: a few operations under common names, and how each decorates.

Operators (`+ - * / @ **`, comparisons, indexing, `.shape`, `float`, `int`) are the library's own; `T.name` is the rest.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

# Called alike everywhere, with the axis as second argument where there is one.
SAME = (
    "exp", "log", "sqrt", "sin", "cos", "tanh", "sigmoid", "relu", "abs", "floor", "maximum", "minimum", "where",
    "isnan", "clip", "stack", "concat", "softmax", "reshape", "sum", "mean", "prod", "max", "min", "any", "all",
    "argmax", "argsort", "cumsum", "transpose", "expand_dims", "zeros", "ones", "eye", "arange", "take",
    "one_hot", "logical_and", "logical_or", "logical_not", "tril", "outer",
)


@dataclass(frozen=True)
class System:
    """A library that captures: its operations, its decorators (the strictest first), and how to read its tensors."""

    operations: Any
    jits: Sequence[Callable[..., Any]]
    array: Callable[[Any], np.ndarray | None]       # the elements of a tensor, None for everything else
    begin: Callable[[], None] = lambda: None        # before every program


def tenon() -> System:
    """One graph, and as it comes."""
    import tenon as tn
    names = {name: getattr(tn, name) for name in SAME}
    operations = SimpleNamespace(
        **names, tensor=lambda data, dtype="float32": tn.asarray(np.asarray(data, dtype)), grad=tn.grad,
        cast=lambda x, dtype: x.astype(getattr(tn, dtype)), topk=tn.topk, put=_tenon_put)
    return System(operations, [lambda f: tn.jit(f, fullgraph=True), tn.jit],
                  lambda x: x.numpy() if isinstance(x, tn.Tensor) else None)


def _tenon_put(x: Any, index: Any, value: Any) -> Any:
    import tenon as tn
    x = tn.copy(x)
    x[index] = value
    return x


def torch_fullgraph() -> System:
    """`torch.compile(fullgraph=True)`."""
    return _torch(["fullgraph"])


def torch_default() -> System:
    """`torch.compile`: one graph where `fullgraph=True` gives one, and else as it comes."""
    return _torch(["fullgraph", "default"])


def _torch(modes: Sequence[str]) -> System:
    import torch
    torch._dynamo.config.capture_scalar_outputs = torch._dynamo.config.capture_dynamic_output_shape_ops = True
    torch.set_num_threads(1)
    logging.getLogger("torch").setLevel(logging.CRITICAL)

    def reduced(whole: Any, along: Any) -> Any:
        return lambda x, axis=None: whole(x) if axis is None else along(x, axis)

    def put(x: Any, index: Any, value: Any) -> Any:
        x = x.clone()
        x[index] = value
        return x

    names = {name: getattr(torch, name) for name in SAME if hasattr(torch, name)}
    names |= {
        "max": reduced(torch.max, torch.amax), "min": reduced(torch.min, torch.amin), "prod": reduced(torch.prod, torch.prod),
        "any": reduced(torch.any, torch.any), "all": reduced(torch.all, torch.all), "expand_dims": torch.unsqueeze,
        "softmax": torch.softmax, "zeros": torch.zeros, "take": lambda x, i, axis=0: torch.index_select(x, axis, i),
        "one_hot": torch.nn.functional.one_hot, "transpose": lambda x: x.T, "put": put, "topk": torch.topk,
        "maximum": lambda x, y: torch.maximum(*_both(torch, x, y)), "minimum": lambda x, y: torch.minimum(*_both(torch, x, y)),
        "tensor": lambda data, dtype="float32": torch.tensor(np.asarray(data, dtype)), "grad": torch.func.grad,
        "cast": lambda x, dtype: x.to(getattr(torch, dtype))}
    jits = {"fullgraph": lambda f: torch.compile(f, fullgraph=True, backend="eager"),
            "default": lambda f: torch.compile(f, backend="eager")}
    return System(SimpleNamespace(**names), [jits[mode] for mode in modes],
                  lambda x: x.detach().numpy() if isinstance(x, torch.Tensor) else None, torch._dynamo.reset)


def _both(torch: Any, *values: Any) -> list[Any]:
    return [x if isinstance(x, torch.Tensor) else torch.tensor(x) for x in values]


def jax_jit() -> System:
    """`jax.jit`."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    from jax import numpy as jnp
    names = {name: getattr(jnp, name, None) or getattr(jax.nn, name) for name in SAME}
    operations = SimpleNamespace(
        **names, tensor=lambda data, dtype="float32": jnp.asarray(np.asarray(data, dtype)), grad=jax.grad,
        cast=lambda x, dtype: x.astype(dtype), topk=jax.lax.top_k, put=lambda x, index, value: x.at[index].set(value))
    warnings.filterwarnings("ignore")
    return System(operations, [jax.jit], lambda x: np.asarray(x) if isinstance(x, jax.Array) else None)


def tf_function() -> System:
    """`tf.function` with AutoGraph."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf
    tf.autograph.set_verbosity(0)
    tf.get_logger().setLevel("ERROR")

    def grad(f: Any) -> Any:
        def gradient(x: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = f(x)
            return tape.gradient(y, x)
        return gradient

    own = {name: getattr(tf, name) for name in SAME if hasattr(tf, name)}
    names = own | {name: getattr(tf.math, name) for name in SAME if hasattr(tf.math, name)}
    names |= {name: getattr(tf, f"reduce_{name}") for name in ("sum", "mean", "prod", "max", "min", "any", "all")}
    names |= {
        "relu": tf.nn.relu, "softmax": tf.nn.softmax, "clip": tf.clip_by_value, "concat": lambda parts, axis=0: tf.concat(parts, axis),
        "isnan": tf.math.is_nan, "argmax": lambda x, axis=0: tf.argmax(x, axis), "arange": tf.range, "take": tf.gather,
        "tril": lambda x: tf.linalg.band_part(x, -1, 0), "outer": lambda x, y: x[:, None] * y[None, :], "topk": tf.math.top_k,
        "tensor": lambda data, dtype="float32": tf.constant(np.asarray(data, dtype)), "cast": tf.cast, "grad": grad,
        "put": lambda x, index, value: tf.tensor_scatter_nd_update(x, [[index]], [value])}
    return System(SimpleNamespace(**names), [tf.function],
                  lambda x: x.numpy() if isinstance(x, tf.Tensor) and hasattr(x, "numpy") else None)


SYSTEMS: dict[str, tuple[str, Callable[[], System]]] = {      # the library that must be installed
    "tenon": ("tenon", tenon),
    "torch.compile": ("torch", torch_default),
    "torch.compile fullgraph": ("torch", torch_fullgraph),
    "jax.jit": ("jax", jax_jit),
    "tf.function": ("tensorflow", tf_function),
}
