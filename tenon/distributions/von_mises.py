"""Von Mises' distribution of angles."""

from __future__ import annotations

import math
from typing import Any

from tenon.distributions import constraints
from tenon.distributions.distribution import Distribution
from tenon.distributions.parameters import a_number, broadcast, positive
from tenon.ops.exponential import log
from tenon.ops.rejection_sampling import random_von_mises
from tenon.ops.special_functions import i0e, i1e
from tenon.ops.trigonometric import cos
from tenon.random import beside, default_generator

__all__ = ["VonMises"]


class VonMises(Distribution):
    """Angles from -pi to pi around `loc`, the closer the larger `concentration` is.

    >>> tn.distributions.VonMises(0.0, 1.0).log_prob(tn.tensor(0.0))
    tensor(-1.0738)
    """

    support = constraints.real
    arg_names = ("loc", "concentration")

    def __init__(self, loc: Any, concentration: Any):
        self.loc, self.concentration = broadcast("VonMises", {"loc": a_number, "concentration": positive}, loc=loc,
                                                concentration=concentration)
        self.batch_shape = tuple(self.loc.shape)

    def _draw(self, shape: tuple[Any, ...]) -> Any:
        around = default_generator.draw(lambda state: random_von_mises(state, self.concentration.detach(), shape=shape),
                                        beside(self.concentration))
        return (around + self.loc + math.pi) % (2 * math.pi) - math.pi

    def log_prob(self, value: Any) -> Any:
        k = self.concentration
        return k * (cos(value - self.loc) - 1) - math.log(2 * math.pi) - log(i0e(k))

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        """1 minus the length of the mean of the unit vectors."""
        return 1 - i1e(self.concentration) / i0e(self.concentration)
