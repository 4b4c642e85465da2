"""What processes hold and give when a function on a mesh is first called -> nothing, or an error on every rank.

Weights that were drawn from different seeds, or dropout's generators, would give numbers of no program.  Some elements
of each tensor are compared, roughly: sums on different processors may differ in their last digits.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence

import numpy as np

from tenon.distributed.graph_agreement import TAG
from tenon.distributed.mpi_link import MpiLink
from tenon.errors import CommunicationError
from tenon.graph.ir import Value

SAMPLES = 64            # elements of a tensor that are compared
NEAR = 1e-2             # of the largest
GIVEN = "every rank gives the whole arguments, the same: seed loaders alike; tn.distributed.shard takes a rank's part"
HINT = "tn.manual_seed(0) on all ranks before weights and other numbers are drawn, or one checkpoint that all load"


def check_same_state(name: str, whole: Sequence[tuple[Value, np.ndarray]], held: Collection[Value],
                     link: MpiLink) -> None:
    """Raise CommunicationError unless these tensors, that are whole on all ranks, are the same on each; those that are
    not `held` are arguments."""
    samples = [sample(x) for _, x in whole]
    mine = np.concatenate(samples or [np.zeros(0)])
    found = [mine if k == link.rank else np.empty_like(mine) for k in range(link.size)]
    others = [k for k in range(link.size) if k != link.rank]
    link.exchange([(k, mine.view(np.uint8)) for k in others], [(k, found[k].view(np.uint8)) for k in others], TAG,
                  lambda: f"the comparison of what {name} holds")
    ends = np.cumsum([x.size for x in samples])[:-1]
    parts = [np.split(x, ends) for x in found]
    for rank in range(1, link.size):
        for k, (p, _) in enumerate(whole):
            if not agree(parts[0][k], parts[rank][k]):
                does, hint = ("hold different tensors", HINT) if p in held else ("give different arguments", GIVEN)
                raise CommunicationError(f"ranks {does} at the first call of {name}: {p.name}, {p.type}, is not on "
                                         f"rank {rank} what it is on rank 0", hint=hint)


def sample(x: np.ndarray) -> np.ndarray:
    """Numbers that two tensors share where they are alike: some elements; of whole numbers, what tells all of them."""
    flat = np.asarray(x).reshape(-1)
    if flat.dtype.kind in "iub":
        return np.asarray([zlib.crc32(flat.tobytes())], np.float64)
    picked = flat[::max(1, -(-flat.size // SAMPLES))]
    return picked.astype(np.complex128 if flat.dtype.kind == "c" else np.float64).view(np.float64)


def agree(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether samples are those of the same tensor."""
    largest = np.max(np.abs(x), initial=0.0, where=np.isfinite(x))
    return bool(np.allclose(x, y, rtol=NEAR, atol=NEAR * largest, equal_nan=True))
