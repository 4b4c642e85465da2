"""What all distributions share: shapes, samples with and without a gradient, what follows from mean and variance."""

from __future__ import annotations

from functools import wraps
from inspect import signature
from typing import Any

from tenon.errors import ArgumentError, ShapeError
from tenon.ops.exponential import exp, sqrt
from tenon.ops.shape import as_shape, broadcast_to


class Distribution:
    """A distribution over tensors of `event_shape`, one for each element of `batch_shape`."""

    has_rsample = False
    arg_names: tuple[str, ...] = ()         # parameters with the axes of the batch, which the repr shows
    batch_shape: tuple[Any, ...] = ()
    event_shape: tuple[Any, ...] = ()

    def __init__(self, batch_shape: Any = (), event_shape: Any = (), validate_args: Any = None):
        self.batch_shape, self.event_shape = as_shape(batch_shape), as_shape(event_shape)

    def __init_subclass__(cls) -> None:
        """`validate_args=`, PyTorch's, means nothing: what is known is checked, and costs nothing in a graph."""
        super().__init_subclass__()
        made = cls.__dict__.get("__init__")
        if made is not None and "validate_args" not in signature(made).parameters:
            @wraps(made)
            def without(self: Any, *args: Any, validate_args: Any = None, **named: Any) -> None:
                made(self, *args, **named)
            cls.__init__ = without      # type: ignore[method-assign]

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Nothing: parameters that are known are checked."""

    def sample(self, sample_shape: Any = ()) -> Any:
        """Draws of shape `sample_shape + batch_shape + event_shape`, through which no gradient goes."""
        return self._draw(self._extended(sample_shape)).detach()

    def sample_n(self, n: int) -> Any:
        """`sample((n,))`."""
        return self.sample((n,))

    def rsample(self, sample_shape: Any = ()) -> Any:
        """Draws with gradients for the parameters; raises ArgumentError where the distribution has none."""
        if not self.has_rsample:
            raise ArgumentError(f"{self._name()}: draws have no gradient for the parameters",
                                hint="x = distribution.sample(), and the gradient of log_prob(x)")
        return self._draw(self._extended(sample_shape))

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        """Draws of a shape, sample, batch and event together."""
        raise NotImplementedError

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the probability, or of its density, at `value`."""
        raise self._lacks("log_prob")

    def entropy(self) -> Any:
        """The expectation of -log_prob."""
        raise self._lacks("entropy")

    def cdf(self, value: Any) -> Any:
        """The probability of draws up to `value`."""
        raise self._lacks("cdf")

    def icdf(self, value: Any) -> Any:
        """The number up to which draws are with probability `value`."""
        raise self._lacks("icdf")

    @property
    def mean(self) -> Any:
        """The expectation."""
        raise self._lacks("mean")

    @property
    def mode(self) -> Any:
        """The likeliest value."""
        raise self._lacks("mode")

    @property
    def variance(self) -> Any:
        """The expected square of the distance from the mean."""
        raise self._lacks("variance")

    @property
    def stddev(self) -> Any:
        """The square root of the variance."""
        return sqrt(self.variance)

    @property
    def support(self) -> Any:
        """The set of its draws: a constraint, whose `check(x)` says which values are among them; None if not known."""
        return None

    def perplexity(self) -> Any:
        """exp(entropy)."""
        return exp(self.entropy())

    def expand(self, batch_shape: Any) -> Distribution:
        """The same distribution with a larger batch, to whose shape the parameters are broadcast."""
        wanted, whole = as_shape(batch_shape), object.__new__(type(self))
        whole.__dict__.update(self.__dict__, batch_shape=wanted)
        for name in self.arg_names:
            held = getattr(self, name)
            own = tuple(held.shape)[len(self.batch_shape):]
            setattr(whole, name, broadcast_to(held, (*wanted, *own)))
        return whole

    # ------------------------------------------------------------ for subclasses

    def _extended(self, sample_shape: Any) -> tuple[Any, ...]:
        return (*as_shape(sample_shape), *self.batch_shape, *self.event_shape)

    def _events(self, value: Any) -> Any:
        """A value, which ends in the axes of an event; raises ShapeError where it does not."""
        own = len(self.event_shape)
        if own and tuple(value.shape)[-own:] != tuple(self.event_shape):
            raise ShapeError(f"{self._name()}: values end in the axes {list(self.event_shape)}, "
                             f"this one is {value.type}")
        return value

    def _name(self) -> str:
        return type(self).__name__

    def _lacks(self, what: str) -> Exception:
        return ArgumentError(f"{self._name()} has no {what}")

    def __repr__(self) -> str:
        def shown(x: Any) -> str:
            return str(x.detach().item()) if x.ndim == 0 else str(x.type)
        return f"{self._name()}({', '.join(f'{name}: {shown(getattr(self, name))}' for name in self.arg_names)})"
