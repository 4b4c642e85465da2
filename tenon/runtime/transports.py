"""Which transport joins the devices of a mesh: threads of this process, or processes that an MPI launcher started."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import Protocol

import numpy as np

from tenon.config import config
from tenon.graph.ir import Graph, Value
from tenon.ops.communicator import Communicator, Ranks
from tenon.records import dataclass
from tenon.runtime.local_transport import LocalTransport


class Transport(Protocol):
    """How the devices of a mesh reach each other."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The devices that this process runs."""

    def begin(self) -> Mapping[int, Communicator]:
        """The communicators of one run, by rank; `abort` of one wakes all that wait, wherever they are."""

    def agree(self, graph: Graph) -> None:
        """Raise CommunicationError on every rank where not all captured this graph."""

    def agree_on_state(self, name: str, whole: Sequence[tuple[Value, np.ndarray]], held: Collection[Value]) -> None:
        """Raise CommunicationError on every rank where these tensors, of which some are `held`, are not the same."""


def transport_for(mesh: Ranks) -> Transport:
    """That of the processes, where there are several, else that of threads.

    Raises ArgumentError where the mesh has not as many places as there are processes.
    """
    if not config().processes:
        return LocalTransport(mesh)
    made: Transport = import_module("tenon.distributed.mpi_transport").MpiTransport(mesh)   # by name: it stands above
    return made


@dataclass(frozen=True)
class Agreed:
    """A transport for devices whose graphs differ; what these are made of was compared."""

    transport: Transport

    @property
    def ranks(self) -> tuple[int, ...]:
        return self.transport.ranks

    def agree(self, graph: Graph) -> None:
        """Nothing is left to compare."""

    def agree_on_state(self, name: str, whole: Sequence[tuple[Value, np.ndarray]], held: Collection[Value]) -> None:
        """Nothing is left to compare."""

    def begin(self) -> Mapping[int, Communicator]:
        return self.transport.begin()
