"""Draws that are made by accepting and refusing, and so by NumPy: gamma, Poisson, binomial and von Mises distributions.

A draw is made from the state of a generator by NumPy's own Philox: its key is the seed, its counter the number of the
draw; eager and compiled code ask for it alike, and get the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tenon.errors import DTypeError, ShapeError
from tenon.graph.op import Op
from tenon.graph.promotion import Kinds, floating
from tenon.ops.define import define
from tenon.ops.shape import as_shape
from tenon.types import TensorType, broadcast_shapes, float64, uint64

BELOW_GAMMA = np.finfo(np.float32).tiny     # a gamma draw that is 0 has no logarithm


def _source(state: Any) -> np.random.Generator:
    seed, draw = (int(word) for word in state)
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, draw]))


def _numbers(kinds: Kinds) -> tuple[Any, ...]:
    """The state keeps its type; parameters become floats."""
    return (kinds[0], *floating(kinds[1:]))


def _canonical(state: TensorType, *parameters: TensorType, shape: Any) -> Mapping[str, Any]:
    return {"shape": as_shape(shape)}


def _rule(name: str) -> Callable[..., TensorType]:
    def checked(state: TensorType, shape: Any, *parameters: TensorType) -> TensorType:
        if state != TensorType(uint64, (2,)):
            raise ShapeError(f"{name}: the state of a generator is u64[2], not {state}")
        if parameters[0].dtype.kind != "f":
            raise DTypeError(f"{name}: parameters are real numbers, not {parameters[0]}")
        wanted = as_shape(shape)
        if broadcast_shapes(wanted, *(p.shape for p in parameters)) != wanted:
            raise ShapeError(f"{name}: parameters {', '.join(map(str, parameters))} do not broadcast to {list(wanted)}")
        return TensorType(parameters[0].dtype, wanted)
    return checked


def _safe(x: Any, low: float, high: float = np.inf) -> tuple[Any, Any]:
    """Parameters that NumPy accepts, and where they are the ones that were given."""
    wide = np.asarray(x, np.float64)
    fine = (wide >= low) & (wide <= high)
    return np.where(fine, wide, low), fine


def _gamma_ref(state: Any, concentration: Any, shape: Any) -> Any:
    a, fine = _safe(concentration, 0.0)
    least = max(BELOW_GAMMA, np.finfo(concentration.dtype).tiny) if concentration.dtype != float64.numpy else 1e-300
    drawn = np.maximum(_source(state).standard_gamma(a, shape), least)
    return np.where(fine, drawn, np.nan).astype(concentration.dtype)


def _poisson_ref(state: Any, rate: Any, shape: Any) -> Any:
    most = 1e18     # NumPy counts in 64 bits
    lam, fine = _safe(rate, 0.0, most)
    return np.where(fine, _source(state).poisson(lam, shape), np.nan).astype(rate.dtype)


def _binomial_ref(state: Any, count: Any, p: Any, shape: Any) -> Any:
    n, counted = _safe(count, 0.0, 1e18)
    share, fine = _safe(p, 0.0, 1.0)
    drawn = _source(state).binomial(n.astype(np.int64), share, shape)
    return np.where(counted & fine, drawn, np.nan).astype(p.dtype)


def _von_mises_ref(state: Any, concentration: Any, shape: Any) -> Any:
    k, fine = _safe(concentration, 0.0)
    return np.where(fine, _source(state).vonmises(0.0, k, shape), np.nan).astype(concentration.dtype)


random_gamma: Op = define(
    "random_gamma", public=False, promote=_numbers, canonical=_canonical, ref=_gamma_ref, domain=(0.5, 4.0),
    type=lambda state, concentration, *, shape: _rule("random_gamma")(state, shape, concentration),
    doc="Numbers from the gamma distributions of these parameters and rate 1; never 0.",
    examples=["random_gamma(u64[2], f32[5], shape=(3, 5)) -> f32[3, 5]",
              "random_gamma(u64[2], f64[4], shape=(3, 5)) -> error",
              "random_gamma(u64[3], f64[5], shape=(3, 5)) -> error"])
random_poisson: Op = define(
    "random_poisson", public=False, promote=_numbers, canonical=_canonical, ref=_poisson_ref, domain=(0.5, 4.0),
    type=lambda state, rate, *, shape: _rule("random_poisson")(state, shape, rate),
    vjp=lambda g, y, state, rate, **_: (None, None),
    doc="How many events there were, of those that come at these rates.",
    examples=["random_poisson(u64[2], f32[5], shape=(3, 5)) -> f32[3, 5]"])
random_binomial: Op = define(
    "random_binomial", public=False, promote=_numbers, canonical=_canonical, ref=_binomial_ref, domain=(0.1, 0.9),
    type=lambda state, count, p, *, shape: _rule("random_binomial")(state, shape, count, p),
    vjp=lambda g, y, state, count, p, **_: (None, None, None),
    doc="How many of `count` trials succeed, each with probability p.",
    examples=["random_binomial(u64[2], f32[5], f32[3, 1], shape=(3, 5)) -> f32[3, 5]"])
random_von_mises: Op = define(
    "random_von_mises", public=False, promote=_numbers, canonical=_canonical, ref=_von_mises_ref, domain=(0.5, 4.0),
    type=lambda state, concentration, *, shape: _rule("random_von_mises")(state, shape, concentration),
    doc="Angles around 0 of von Mises' distributions of these concentrations.",
    examples=["random_von_mises(u64[2], f32[5], shape=(3, 5)) -> f32[3, 5]"])
