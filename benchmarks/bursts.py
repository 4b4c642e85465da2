"""Libraries in processes of their own, which run in turn: one works while the others sleep.

    with Library("torch", "gpt", threads=2) as torch: ...
        torch.first                 # numbers that its first run returned, None where it cannot do the row
        torch.burst(0.3)            # seconds of each of the runs that it made in 0.3 s

Threads of one library that wait for work by looking at a word are in the way of the next library; in a process that
waits for its turn they have gone to sleep.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from tempfile import TemporaryFile
from typing import Any, Self

import numpy as np

from benchmarks.processes import environment, module
from tenon.config import config


class Library:
    """The process of one library, for one row of the table."""

    def __init__(self, name: str, row: str, threads: int):
        self.name = f"{name} {row}"
        command = [sys.executable, *module("bursts", name, row, str(threads))]
        self.log = TemporaryFile("w+")          # noqa: SIM115   closed with the process
        self.process = subprocess.Popen(command, env=environment(threads), text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log)
        self.first: list[float] | None = self.answer()

    def burst(self, seconds: float, wall: bool = False) -> list[float]:
        """The times of the runs it makes in so many seconds, at least one; `wall`: by the clock on the wall."""
        self.tell({"seconds": seconds, "wall": wall})
        found: list[float] = self.answer()
        return found

    def limit(self) -> tuple[str, float] | None:
        """What limits the row, and the seconds that it asks for at least."""
        self.tell({"limit": True})
        found: tuple[str, float] | None = self.answer()
        return found

    def tell(self, order: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        print(json.dumps(order), file=self.process.stdin, flush=True)

    def answer(self) -> Any:
        """The next line that is an answer; what libraries print besides is not."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                return json.loads(line[len(ANSWER):])
        self.log.seek(0)
        raise RuntimeError(f"{self.name} ended early\n{self.log.read()[-3000:]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        self.log.close()


ANSWER = "answer: "
SAMPLES = 64                # of each array
SHORT = 3e-4                # seconds that a clock tells well


def serve(name: str, row: str, threads: int) -> None:
    """Make the library's run, then do what the lines of standard input say."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])      # before any library counts them
    from benchmarks.rows import ROWS, Row

    chosen = ROWS[row]
    assert isinstance(chosen, Row)
    run = chosen.make(name)
    answer(None if run is None else sample(run()))
    for line in sys.stdin:
        order = json.loads(line)
        if "limit" in order:
            answer(chosen.limit and chosen.limit())
        elif run is not None:
            answer(times(run, order["seconds"], order["wall"]))


def sample(result: Any) -> list[float]:
    """Some numbers of a result, by which libraries are compared."""
    if isinstance(result, tuple | list):
        return [x for part in result for x in sample(part)]
    if result is None:
        return []
    numbers = np.asarray(result.detach() if hasattr(result, "detach") else result).ravel()
    return [float(x) for x in numbers[:: max(1, numbers.size // SAMPLES)]]


def times(run: Any, seconds: float, wall: bool = False) -> list[float]:
    """Of runs one after the other, several together where one is short; the first, which wakes threads, is left out."""
    clock = time.process_time if config().threads == 1 and not wall else time.perf_counter
    start = time.perf_counter()
    run()
    repeats = max(1, int(SHORT / max(time.perf_counter() - start, 1e-7)))
    found: list[float] = []
    end = time.perf_counter() + seconds
    while not found or time.perf_counter() < end:
        start = clock()
        for _ in range(repeats):
            run()
        found.append((clock() - start) / repeats)
    return found


def answer(value: Any) -> None:
    print(ANSWER + json.dumps(value), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
