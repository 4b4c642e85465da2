"""The processes of this run as a mesh: what collectives speak through that the user calls by hand.

    rank, size = tn.distributed.rank(), tn.distributed.size()
    total = tn.distributed.all_reduce(gradient)                # eager, or within @tn.jit
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tenon.config import config
from tenon.errors import ArgumentError
from tenon.ops.communicator import Communicator, speak_by_default
from tenon.runtime.transports import transport_for
from tenon.sharding.mesh import Mesh

_mesh: list[Mesh] = []


def rank() -> int:
    """The number of this process among those of the run, from 0; 0 where it is the only one."""
    if not config().processes:
        return 0
    from tenon.distributed.mpi_link import link  # local: MPI is loaded where there are processes
    return link().rank


def size() -> int:
    """How many processes the run has."""
    if not config().processes:
        return 1
    from tenon.distributed.mpi_link import link  # local, as above
    return link().size


def is_available() -> bool:
    """True: whether there are several processes says `is_initialized`."""
    return True


def is_initialized() -> bool:
    """Whether this process is one of a run of several."""
    return bool(config().processes)


def init_process_group(*_: Any, **__: Any) -> None:
    """Not there: raises ArgumentError."""
    raise ArgumentError("init_process_group: processes are started with a mesh, which a step is compiled for",
                        hint="tn.jit(step, mesh=...), see docs/distributed.md")


def destroy_process_group(group: Any = None) -> None:
    """Nothing: a run ends with its processes."""


def gather_texts(text: str) -> list[str]:
    """The text of every process, in the order of their ranks."""
    if not config().processes:
        return [text]
    from tenon.distributed.mpi_link import link  # local, as above
    return link().gather_texts(text)


def set_mesh(mesh: Mesh) -> None:
    """Let the processes be this mesh, for collectives that are called by hand.

    Without it they are a mesh of one axis, "data".  Raises ArgumentError unless the mesh has a place a process.
    """
    if mesh.size != size():
        raise ArgumentError(f"set_mesh: {mesh!r} has {mesh.size} places, and there are {size()} processes",
                            hint=f"tenon launch -n {mesh.size} starts as many")
    _mesh[:] = [mesh]


def current_mesh() -> Mesh:
    """The mesh of the processes."""
    return _mesh[0] if _mesh else Mesh({"data": size()})


@cache
def speaker_of(mesh: Mesh) -> Communicator:
    """What this process speaks through on a mesh of the processes."""
    return transport_for(mesh).begin()[rank()]


speak_by_default(lambda name: speaker_of(current_mesh()))
