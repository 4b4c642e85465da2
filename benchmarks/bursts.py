"""Libraries in processes of their own, which run in turn: one works while the others sleep.

    with Library("torch", "gpt", threads=2) as torch: ...
        torch.first                 # the number that its first run returned, None where it cannot do the row
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
from typing import Any, Self

from tenon.config import config


class Library:
    """The process of one library, for one row of the table."""

    def __init__(self, name: str, row: str, threads: int):
        number = str(threads)
        environment = os.environ | {
            "TENON_THREADS": number, "OPENBLAS_NUM_THREADS": number, "OMP_NUM_THREADS": number,
            "MKL_NUM_THREADS": number, "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-m", "benchmarks.bursts", name, row, number]
        self.process = subprocess.Popen(command, env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.first: float | None = self.answer()

    def burst(self, seconds: float) -> list[float]:
        """The times of the runs it makes in so many seconds, at least one."""
        self.tell({"seconds": seconds})
        found: list[float] = self.answer()
        return found

    def ask(self, question: str) -> float:
        """One of the numbers that `benchmarks.table` knows of a row."""
        self.tell({"question": question})
        number: float = self.answer()
        return number

    def tell(self, order: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        print(json.dumps(order), file=self.process.stdin, flush=True)

    def answer(self) -> Any:
        """The next line that is an answer; what libraries print besides is not."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                return json.loads(line[len(ANSWER):])
        raise RuntimeError(f"a benchmark ended early: {' '.join(map(str, self.process.args[2:]))}")    # type: ignore[index, union-attr]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


ANSWER = "answer: "


def serve(name: str, row: str, threads: int) -> None:
    """Make the library's run, then do what the lines of standard input say."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])      # before any library counts them
    from benchmarks.models import WORKLOADS
    from benchmarks.table import MAKE, NUMBERS

    run = MAKE[name](WORKLOADS[row])
    answer(None if run is None else run())
    for line in sys.stdin:
        order = json.loads(line)
        if "question" in order:
            answer(NUMBERS[order["question"]](WORKLOADS[row]))
        elif run is not None:
            answer(times(run, order["seconds"]))


def times(run: Any, seconds: float) -> list[float]:
    """Of runs one after the other; the first, which wakes the threads, is left out."""
    clock = time.process_time if config().threads == 1 else time.perf_counter
    run()
    found: list[float] = []
    end = time.perf_counter() + seconds
    while not found or time.perf_counter() < end:
        start = clock()
        run()
        found.append(clock() - start)
    return found


def answer(value: Any) -> None:
    print(ANSWER + json.dumps(value), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
