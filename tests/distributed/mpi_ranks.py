"""Run by every rank of `mpiexec`: collectives on data that both sides know, written to a file a rank."""

import sys
from typing import Any

import numpy as np

from tenon.ops.communicator import Communicator, part_size
from tenon.types import as_dtype

SHORTS = ("f32", "f16", "bf16", "i64", "c64")
SHAPES = ((), (0, 3), (5, 7), (97, 61))
LARGE = (700, 1013)


def data(rank: int, shape: tuple[int, ...], short: str) -> np.ndarray:
    return np.random.default_rng(rank).standard_normal(shape).astype(as_dtype(short).numpy)


def everything(speaker: Communicator) -> dict[str, np.ndarray]:
    """What a rank gets, by the name of the call."""
    over, count, rank = ("data",), speaker.size, speaker.rank
    found: dict[str, Any] = {}
    for short in SHORTS:
        for shape in (*SHAPES, LARGE) if short == "f32" else SHAPES:
            x = data(rank, shape, short)
            for op in ("sum",) if short == "c64" else ("sum", "max"):
                found[f"{op} {short} {shape}"] = speaker.all_reduce(x, over, op)
            for axis, size in enumerate(shape):
                mine = part_size(size, count, rank)
                piece = speaker.reduce_scatter(x, axis, over, "sum", mine)
                found[f"scatter {short} {shape} {axis}"] = piece
                found[f"gather {short} {shape} {axis}"] = speaker.all_gather(piece, axis, over, size)
            if len(shape) == 2:
                mine, other = part_size(shape[0], count, rank), part_size(shape[1], count, rank)
                part = speaker.reduce_scatter(x, 0, over, "sum", mine)
                found[f"swap {short} {shape}"] = speaker.all_to_all(part, 1, 0, over, other, shape[0])
            found[f"broadcast {short} {shape}"] = speaker.broadcast(x, over, count - 1)
            found[f"permute {short} {shape}"] = speaker.permute(x, over, 1)
            speaker.send(x, (rank + 1) % count, 3)
            found[f"recv {short} {shape}"] = speaker.recv(shape, x.dtype, (rank - 1) % count, 3)
        speaker.barrier(over)
    return found | {f"started {name}": x for name, x in started(speaker).items()}


def started(speaker: Communicator) -> dict[str, np.ndarray]:
    """Sums that are begun one after the other, and waited for in another order on every rank."""
    over = ("data",)
    groups = [[data(speaker.rank, shape, short) for shape in shapes]
              for short in ("f32", "i64") for shapes in ((LARGE,), ((3, 5),), ((2,), (0, 4), ()), (LARGE,))]
    outs = [[np.empty_like(x) for x in xs] for xs in groups]
    for xs, sums in zip(groups, outs, strict=True):
        speaker.start_sum(xs, sums, over, "sum")
    between = speaker.all_reduce(data(speaker.rank, LARGE, "f32"), over, "max")
    for k in np.roll(np.arange(len(groups)), speaker.rank):
        speaker.finish_sum(outs[k])
    return {"between": between, **{f"{k} {n}": x for k, sums in enumerate(outs) for n, x in enumerate(sums)}}


if __name__ == "__main__":
    from tenon.distributed.mpi_transport import MpiTransport
    from tenon.sharding.mesh import Mesh

    ((rank, speaker),) = MpiTransport(Mesh({"data": int(sys.argv[2])})).begin().items()
    results = everything(speaker)
    speaker.close()
    np.savez(f"{sys.argv[1]}/{rank}.npz", **{name: x.reshape(-1).view(np.uint8) for name, x in results.items()})
