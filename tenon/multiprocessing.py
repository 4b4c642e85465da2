"""`tn.multiprocessing`: Python's own module, and `spawn`, as PyTorch has it.

Tensors go to other processes as copies: processes share no memory.
"""

import multiprocessing as _multiprocessing
from collections.abc import Callable as _Callable
from multiprocessing import *  # noqa: F403
from multiprocessing.connection import wait as _wait
from multiprocessing.context import SpawnProcess as _SpawnProcess
from time import monotonic as _monotonic
from typing import Any as _Any

from tenon.errors import TenonError as _TenonError

get_context, set_start_method = _multiprocessing.get_context, _multiprocessing.set_start_method


class ProcessExitedException(_TenonError, RuntimeError):
    """A process that was spawned ended with an error."""


class SpawnContext:
    """Processes that run, as `spawn(..., join=False)` gives them."""

    def __init__(self, processes: list[_SpawnProcess]):
        self.processes = processes

    def join(self, timeout: float | None = None) -> bool:
        """Wait for all; raises ProcessExitedException as soon as one failed, and ends the others then.

        Returns whether all have ended, where that took no more than `timeout` seconds.
        """
        until = None if timeout is None else _monotonic() + timeout
        left: dict[_Any, _SpawnProcess] = {process.sentinel: process for process in self.processes}
        while left:
            ended = _wait(left, None if until is None else max(0.0, until - _monotonic()))
            if not ended:
                return False
            for sentinel in ended:
                process = left.pop(sentinel)
                process.join()
                if process.exitcode:
                    self._failed(process)
        return True

    def _failed(self, process: _SpawnProcess) -> None:
        for other in self.processes:
            other.terminate()
        raise ProcessExitedException(f"spawn: process {self.processes.index(process)} ended with code "
                                     f"{process.exitcode}")


def spawn(fn: _Callable[..., _Any], args: tuple[_Any, ...] = (), nprocs: int = 1, join: bool = True,
          daemon: bool = False, start_method: str = "spawn") -> SpawnContext | None:
    """Run `fn(i, *args)` in processes of their own, i from 0 to nprocs - 1, and wait for them, unless told not to."""
    context: _Any = _multiprocessing.get_context(start_method)
    processes = [context.Process(target=fn, args=(i, *args), daemon=daemon) for i in range(nprocs)]
    for process in processes:
        process.start()
    found = SpawnContext(processes)
    return None if join and found.join() else found


def set_sharing_strategy(new_strategy: str) -> None:
    """Nothing: tensors are copied."""


def get_sharing_strategy() -> str:
    """How tensors go to other processes."""
    return "copy"
