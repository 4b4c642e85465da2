"""What a program has to know about a kernel to run it, without its loops."""

from __future__ import annotations

from tenon.dims.symbolic_dim import Dim
from tenon.records import dataclass
from tenon.types import TensorType

Shared = tuple[tuple[int, int], ...]        # (output, the input whose memory it has)


@dataclass(frozen=True)
class Check:
    """An index among the data that is checked: which node of the body reads there, -1 if none, and its operator."""

    node: int
    operator: str


@dataclass(frozen=True)
class KernelMetadata:
    """How to call a kernel."""

    stages: int                             # functions, between barriers
    temporaries: tuple[TensorType, ...]     # memory that the stages share
    scratch: Dim                            # bytes of its own that every thread needs
    in_place: frozenset[tuple[int, int]]    # (output, input) pairs such that the output may take the input's memory
    sizes: tuple[str, ...]                  # the symbolic sizes that it is given
    checks: tuple[Check, ...]               # the k-th writes k + 1 into the status words
