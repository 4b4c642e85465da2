"""Graph -> inputs to try it on: sizes for its symbols, and arrays with ties, zeros of both signs, infinities and NaN.

What a pass may not change is most easily changed at such values, and at sizes that are odd, prime, or longer than a
vector.  Symbols are never 0 or 1, for which graphs of their own are captured; sizes that are known may be.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping

import numpy as np

from tenon.dims.symbolic_dim import evaluate
from tenon.graph.ir import Graph
from tenon.records import dataclass
from tenon.types import TensorType

SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan)
TIES = (0.0, -0.0, 1.0, 1.0, -1.0, 2.0, -2.0, 0.5)
SIZES = ((3, 2, 5, 7), (17, 5, 3, 2), (2, 2, 2, 2))        # of the first symbols; more take them in turn
KINDS = ("plain", "ties", "special")
ONE_IN, ONE_IN_FEW = 5, 2       # elements that is special, of many and of few
FEW_ELEMENTS = 16


@dataclass(frozen=True, eq=False)
class SampleInputs:
    """Arrays for the parameters of a graph."""

    kind: str
    sizes: Mapping[str, int]
    arrays: tuple[np.ndarray, ...]

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {n}" for name, n in self.sizes.items())
        return f"{self.kind} inputs" + (f" with {sizes}" if sizes else "")


def sample_inputs(graph: Graph) -> Iterator[SampleInputs]:
    """The inputs to try; the same for graphs of one name and type."""
    symbols = graph.symbols()
    for numbers in SIZES if symbols else SIZES[:1]:
        sizes = {name: numbers[k % len(numbers)] for k, name in enumerate(symbols)}
        for kind in KINDS:
            text = f"{graph.name} {kind} {sizes} {[str(p.type) for p in graph.params]}"
            random = np.random.default_rng(zlib.crc32(text.encode()))
            yield SampleInputs(kind, sizes, tuple(sample_array(p.type, sizes, kind, random) for p in graph.params))


def sample_array(type: TensorType, sizes: Mapping[str, int], kind: str, random: np.random.Generator) -> np.ndarray:
    """An array of this type.  Whole numbers are 0 and 1, since they may be positions."""
    shape = [evaluate(n, sizes) for n in type.shape]
    if type.dtype.kind not in "fc":
        return random.integers(0, 2, shape).astype(type.dtype.numpy)
    values: np.ndarray = np.asarray(random.choice(TIES, shape) if kind == "ties" else random.standard_normal(shape))
    if type.dtype.kind == "c":
        values = values + 1j * random.standard_normal(shape)
    if kind == "special":
        one_in = ONE_IN if values.size > FEW_ELEMENTS else ONE_IN_FEW
        values = np.where(random.integers(0, one_in, shape) == 0, random.choice(SPECIAL, shape), values)
    return np.asarray(values).astype(type.dtype.numpy)
