"""Random tensors: a generator that keeps the state of `tenon.ops.philox_random`, and the functions that draw from it.

    tn.manual_seed(0)
    x = tn.randn(2, 3)              # draws from tn.random.default_generator

The state is a tensor that every draw reads and assigns, so a captured graph carries it like any other state: each call
draws new numbers, the same ones as without `@tn.jit`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tenon.devices import HOST, Device, check_device, placing
from tenon.errors import ArgumentError
from tenon.graph.kernels import KERNELS
from tenon.graph.op import current
from tenon.locks import Lock
from tenon.ops import philox_random as ops
from tenon.ops import random_draws
from tenon.ops.bit_exact_math import normal_quantile, portable_log, scaled
from tenon.ops.define import lift
from tenon.ops.getitem import getitem
from tenon.ops.index_helpers import view_as_complex
from tenon.ops.ordering import topk
from tenon.ops.placing import on_device
from tenon.ops.prefetch_draws import Sequels
from tenon.ops.random_draws import Drawing
from tenon.ops.rejection_sampling import random_poisson
from tenon.ops.shape import as_number, as_shape, cast
from tenon.tensor import Tensor, fresh, tensor
from tenon.tensor_state import TensorState, changed, journal, recorder
from tenon.types import as_dtype, broadcast_shapes, float32, float64, int64, real_of

DRAW_MASK = 2 ** 64 - 1
recorder_of, journal_of = recorder.get, journal.get


class Generator:
    """A source of random numbers with a state of its own.

    >>> a, b = tn.random.Generator(seed=1), tn.random.Generator(seed=1)
    >>> bool((tn.rand(3, generator=a) == tn.rand(3, generator=b)).all())
    True
    """

    def __init__(self, seed: int | str | Device | None = None, device: Any = None):
        if isinstance(seed, (str, Device)):         # as PyTorch's is made: for a device
            seed, device = None, seed
        if device is not None and check_device(device) is not HOST:
            raise ArgumentError(f"Generator: its state lies on the CPU, not on {device}",
                                hint="device= of what draws says where random numbers are made")
        self.state = tensor(_state(int.from_bytes(os.urandom(8), "little") if seed is None else seed))
        self._lock = Lock()
        self._sequels = Sequels()

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle takes along: the state alone."""
        return {"state": self.state}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__init__(0)        # type: ignore[misc]    # the lock, and what is known of draws
        self.state = kept["state"]

    def manual_seed(self, seed: int) -> Generator:
        """Start again from this seed; returns the generator."""
        self.state.assign(tensor(_state(seed)))
        return self

    def seed(self) -> Any:
        """Start again from a seed that nobody knows; returns it."""
        found = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(found)
        return found

    def initial_seed(self) -> Any:
        """The seed that it began with."""
        return self.state[0].item()

    def get_state(self) -> Tensor:
        """The state, to be given to `set_state` later."""
        copied: Tensor = self.state + 0
        return copied

    def set_state(self, state: Any) -> None:
        """Go on from this state."""
        self.state.assign(state)

    def draw(self, distribution: Callable[[Tensor], Tensor], device: Any = None) -> Tensor:
        """What `distribution` makes of the state, which is then advanced; by default it lies where tensors are made."""
        place = check_device(device) or placing()
        with self._lock:
            drawn = distribution(self.state if place is None else on_device(self.state, place))
            self.state.assign(ops.random_advance(self.state))
        return drawn

    def numbers(self, kind: Drawing, shape: Any, *attrs: Any, device: Any = None) -> Tensor:
        """A draw of a kind; a few numbers, drawn eagerly, are made with those of the draws before.

        What the operators would do is done to the arrays then: the state is advanced, and whoever counts is told.
        """
        if device is None and current() is None and recorder_of() is None and journal_of() is None and not KERNELS:
            with self._lock:
                payload: Any = self.state.own.payload
                sequel = self._sequels.find((kind, shape, attrs))
                if sequel is not None and type(payload) is np.ndarray:
                    seed, draw = payload.tolist()
                    drawn = sequel.take(seed, draw)
                    self.state.own = TensorState(np.array((seed, draw + 1 & DRAW_MASK), np.uint64))
                    changed()
                    return fresh(drawn)
        return self._first(kind, shape, attrs, device)

    def _first(self, kind: Drawing, shape: Any, attrs: tuple[Any, ...], device: Any) -> Tensor:
        """A draw as operators make it; those that follow are remembered, where they can be."""
        drawn = self.draw(lambda state: kind.draw(state, shape, *attrs), device)
        plain = device is None and current() is None and recorder_of() is None
        if plain and (key := (kind, shape, attrs)) not in self._sequels:
            self._sequels.note(key, kind.sequel(drawn.dtype, shape, *attrs))
        return drawn


def _state(seed: int) -> Any:
    if isinstance(seed, float) or not hasattr(seed, "__index__"):
        raise ArgumentError(f"manual_seed: a seed must be an integer, not {seed!r}")
    return np.array([int(seed) & DRAW_MASK, 0], np.uint64)


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Start the default generator again from this seed.

    >>> _ = tn.manual_seed(0)
    >>> a = tn.rand(2)
    >>> _ = tn.manual_seed(0)
    >>> bool((a == tn.rand(2)).all())
    True
    """
    return default_generator.manual_seed(seed)


def seed() -> Any:
    """Seed the default generator by the system's random numbers; returns the seed."""
    return default_generator.seed()


def initial_seed() -> Any:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator."""
    return default_generator.get_state()


def set_rng_state(new_state: Any) -> None:
    """Let the default generator go on from this state."""
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, **_: Any) -> Iterator[None]:
    """A block after which the default generator goes on as if nothing had been drawn in it.

    >>> _ = tn.manual_seed(0)
    >>> with tn.random.fork_rng():
    ...     inside = tn.rand(2)
    >>> bool((tn.rand(2) == inside).all())
    True
    """
    state = get_rng_state().clone() if enabled else None
    try:
        yield
    finally:
        if state is not None:
            set_rng_state(state)


def _draw(generator: Generator | None, distribution: Callable[[Tensor], Tensor], device: Any) -> Tensor:
    return (generator or default_generator).draw(distribution, device)


def _numbers(generator: Generator | None, kind: Drawing, shape: Any, *attrs: Any, device: Any = None) -> Tensor:
    return (generator or default_generator).numbers(kind, shape, *attrs, device=device)


def beside(*tensors: Any) -> Any:
    """The device of the first tensor among these; None where what is made lies there anyway."""
    found = next((x.device for x in tensors if isinstance(x, Tensor)), HOST)
    return None if found is HOST and placing() is None else found


def _sizes(shape: tuple[Any, ...]) -> Any:
    if len(shape) == 1 and type(shape[0]) is int and shape[0] >= 0:
        return shape            # as often
    return as_shape(shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape)


# ---------------------------------------------------------------- numbers of a shape

def rand(*shape: Any, dtype: Any = float32, generator: Generator | None = None, requires_grad: bool = False,
         device: Any = None) -> Tensor:
    """Numbers uniform in [0, 1); of complex ones both parts are."""
    out = _of_kind(random_draws.fractions, shape, as_dtype(dtype), generator, device)
    return out.requires_grad_() if requires_grad else out


def randn(*shape: Any, dtype: Any = float32, generator: Generator | None = None, requires_grad: bool = False,
          device: Any = None) -> Tensor:
    """Numbers from the standard normal distribution; complex ones have parts of variance 1/2."""
    out = _of_kind(random_draws.normals, shape, as_dtype(dtype), generator, device)
    out = out * math.sqrt(0.5) if out.dtype.kind == "c" else out
    return out.requires_grad_() if requires_grad else out


def _of_kind(kind: Drawing, shape: Any, dtype: Any, generator: Generator | None, device: Any) -> Tensor:
    """Numbers of a distribution, real or, drawn in pairs, complex."""
    source, sizes = generator or default_generator, _sizes(shape)
    if dtype.kind != "c":
        return source.numbers(kind, sizes, dtype, device=device)
    parts = source.numbers(kind, (*sizes, 2), real_of(dtype), device=device)
    found: Tensor = view_as_complex(parts)
    return found


def randint(low: int, high: Any = None, size: Any = None, dtype: Any = int64,
            generator: Generator | None = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Integers from low up to (not including) high, all equally likely; `randint(high, size)` starts from 0.

    >>> tn.randint(5, (2, 3)).shape
    (2, 3)
    """
    if high is None or isinstance(high, (tuple, list)):
        low, high, size = 0, low, size if high is None else high
    if not low < high:
        raise ArgumentError(f"randint: there is no integer from {low} up to {high}")
    shape = as_shape(() if size is None else size)
    out = _numbers(generator, random_draws.integers, shape, as_number(low, int),
                   as_number(high, int) - as_number(low, int), device=device)
    found: Tensor = out if as_dtype(dtype) is int64 else cast(out, dtype=dtype)
    return found.requires_grad_() if requires_grad else found


def randperm(n: int, dtype: Any = int64, generator: Generator | None = None, device: Any = None) -> Tensor:
    """0, 1, ... n - 1 in random order."""
    order = _numbers(generator, random_draws.orders, as_shape((n,)), device=device)
    return order if as_dtype(dtype) is int64 else cast(order, dtype=dtype)


def uniform(low: Any = 0.0, high: Any = 1.0, size: Any = None, dtype: Any = float32,
            generator: Generator | None = None) -> Tensor:
    """Numbers uniform in [low, high); the ends may be tensors, which broadcast."""
    u = _numbers(generator, random_draws.fractions, _size(size, low, high), as_dtype(dtype),
                 device=beside(low, high))
    standard = isinstance(low, (int, float)) and isinstance(high, (int, float)) and low == 0 and high == 1
    return u if standard else scaled(u, high - low, low)


def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, dtype: Any = float32,
           generator: Generator | None = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Numbers from the normal distribution; mean and standard deviation may be tensors, which broadcast."""
    if isinstance(std, (int, float)) and std < 0:
        raise ArgumentError(f"normal: the standard deviation must not be negative, got {std}")
    z = _numbers(generator, random_draws.normals, _size(size, mean, std), as_dtype(dtype),
                 device=device or beside(mean, std))
    drawn: Tensor = z * std + mean if z.dtype.kind == "c" else scaled(z, std, mean)
    return drawn.requires_grad_() if requires_grad else drawn


def exponential(rate: Any = 1.0, size: Any = None, dtype: Any = float32, generator: Generator | None = None,
                device: Any = None) -> Tensor:
    """Waiting times between events that come at this rate."""
    drawn: Tensor = _waiting_times(_size(size, rate), dtype, generator, device or beside(rate)) / rate
    return drawn


def _waiting_times(shape: Any, dtype: Any, generator: Generator | None, device: Any = None) -> Tensor:
    return _numbers(generator, random_draws.waiting_times, shape, as_dtype(dtype), device=device)


def truncated_normal(low: float = -2.0, high: float = 2.0, size: Any = (), dtype: Any = float32,
                     generator: Generator | None = None) -> Tensor:
    """Numbers from the standard normal distribution, given that they lie in [low, high]."""
    below, above = (float(_normal_share(x)) for x in (low, high))
    wide = float64 if as_dtype(dtype) is float64 else float32
    drawn: Tensor = cast(normal_quantile(uniform(below, above, size, wide, generator)).clip(low, high), dtype=dtype)
    return drawn


def _normal_share(x: float) -> float:
    return 0.5 * math.erfc(-x / 2.0 ** 0.5)


def rand_like(x: Any, dtype: Any = None, generator: Generator | None = None, requires_grad: bool = False,
              device: Any = None, memory_format: Any = None) -> Tensor:
    """Numbers uniform in [0, 1) with the shape and element type of x.  `memory_format` means nothing."""
    return rand(x.shape, dtype=dtype or x.dtype, generator=generator, requires_grad=requires_grad,
                device=device or beside(x))


def randn_like(x: Any, dtype: Any = None, generator: Generator | None = None, requires_grad: bool = False,
               device: Any = None, memory_format: Any = None) -> Tensor:
    """Numbers from the standard normal distribution with the shape and element type of x."""
    return randn(x.shape, dtype=dtype or x.dtype, generator=generator, requires_grad=requires_grad,
                 device=device or beside(x))


def randint_like(x: Any, low: int, high: Any = None, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """Integers from low up to (not including) high with the shape and element type of x."""
    low, high = (0, low) if high is None else (low, high)
    return randint(low, high, x.shape, dtype or x.dtype, generator, beside(x))


def _size(size: Any, *parameters: Any) -> Any:
    """The shape asked for, or the one that the parameters broadcast to."""
    if size is not None:
        return as_shape(size)
    return broadcast_shapes(*(tuple(p.shape) for p in parameters if hasattr(p, "shape")))


# ---------------------------------------------------------------- choices

def bernoulli(p: Any, size: Any = None, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """1 with probability p, else 0; in the element type of p unless given.

    `bernoulli(x, 0.3)` draws as many as x has elements, in its type.
    """
    if isinstance(size, float) and hasattr(p, "shape"):
        p, size, dtype = size, p.shape, dtype or p.dtype
    if isinstance(p, (int, float)) and not 0 <= p <= 1:
        raise ArgumentError(f"bernoulli: p={p} is not a probability")
    u = _numbers(generator, random_draws.fractions, _size(size, p), float32, device=beside(p))
    drawn: Tensor = cast(u < p, dtype=dtype or (p.dtype if hasattr(p, "dtype") else float32))
    return drawn


def poisson(rate: Any, generator: Generator | None = None) -> Tensor:
    """How many events there were of those that come at these rates.

    >>> tn.poisson(tn.zeros(2))
    tensor([0., 0.])
    """
    rate = lift(rate)
    if rate.dtype.kind != "f":
        raise ArgumentError(f"poisson: rates are real numbers, not {rate.type}", hint="rate.float()")
    return _draw(generator, lambda state: random_poisson(state, rate, shape=rate.shape), beside(rate))


def categorical(logits: Any, size: Any = (), axis: int = -1, generator: Generator | None = None) -> Tensor:
    """The number of a class along an axis of `logits`, with probability softmax(logits); `size` draws, in front."""
    logits = lift(logits)
    shape = (*as_shape(size), *logits.shape)
    at = axis + len(shape) if axis < 0 else axis + len(shape) - logits.ndim
    drawn: Tensor = (logits + _gumbel(shape, generator, beside(logits))).argmax(axis=at)
    return drawn


def multinomial(input: Any, num_samples: int, replacement: bool = False,
                generator: Generator | None = None) -> Tensor:
    """`num_samples` numbers of classes from the last axis of `input`, which need not sum to 1.

    Raises ArgumentError where more are asked for than there are classes and `replacement` is False.
    """
    logits = portable_log(input)
    if replacement:
        wide = getitem(logits, (..., None, slice(None)))
        shape = (*logits.shape[:-1], num_samples, logits.shape[-1])
        repeated: Tensor = (wide + _gumbel(shape, generator, beside(wide))).argmax(axis=-1)
        return repeated
    if num_samples > logits.shape[-1]:
        raise ArgumentError(f"multinomial: {num_samples} of {logits.shape[-1]} classes without replacement")
    drawn: Tensor = topk(logits + _gumbel(logits.shape, generator, beside(logits)), num_samples)[1]
    return drawn


def _gumbel(shape: Any, generator: Generator | None, device: Any) -> Tensor:
    drawn: Tensor = -portable_log(_waiting_times(shape, float32, generator, device))
    return drawn


def dropout(x: Tensor, p: float = 0.5, training: bool = True, generator: Generator | None = None) -> Tensor:
    """x with each element zero with probability p, the rest scaled by 1 / (1 - p); x itself unless training.

    >>> tn.dropout(tn.ones(3), training=False)
    tensor([1., 1., 1.])
    """
    if not 0 <= p <= 1:
        raise ArgumentError(f"dropout: p={p} is not a probability")
    if not training or p == 0:
        return x
    return _draw(generator, lambda state: ops.dropout(x, state, p=as_number(p, float)), beside(x))


def shuffle(x: Any, axis: int = 0, generator: Generator | None = None) -> Tensor:
    """The slices along an axis in random order."""
    drawn: Tensor = x.take(randperm(int(x.shape[axis]), generator=generator, device=beside(x)), axis=axis)
    return drawn


__all__ = ["Generator", "default_generator", "manual_seed", "rand", "randn", "randint", "randperm", "uniform", "normal",
           "exponential", "truncated_normal", "rand_like", "randn_like", "randint_like", "bernoulli", "categorical",
           "multinomial", "poisson", "dropout", "shuffle"]
