"""Mutated texts of graphs: each is refused, or compiles and runs.  Nothing crashes, hangs, or ends in a foreign error.

    python tests/robustness/mutated_graphs.py --count 100000 --seed 7 --run 0.05

A worker process goes through the texts, and keeps a journal; where it ends, or takes too long, the text that it was at
is a finding, and another goes on behind it.  What is run lies between pages that nobody may touch (tests/guarded.py).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve()
PATHS = [str(HERE.parents[2]), str(HERE.parents[1])]
SECONDS_TO_READ, SECONDS_TO_RUN = 5.0, 10.0     # of the processor: others may use it too
HANGS, WAITS = 30.0, 300.0      # seconds of the processor, and of the clock, on one text
MAX_MEMORY = 8 << 30            # of a worker, with all that LLVM maps
MAX_ELEMENTS = 1 << 22          # of the values of a graph that is run
GOOD = ("refused", "accepted", "ran", "failed", "stopped", "large")


# ---------------------------------------------------------------- the worker

class Stopped(BaseException):
    """The time is up."""


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise Stopped in this block after so many seconds."""
    def stop(*_: Any) -> None:
        raise Stopped
    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def work(texts: list[str], seed: int, first: int, last: int, share: float, journal: str) -> None:
    """Go through some of the texts of a seed, a line of the journal each."""
    import guarded  # local: the parent needs no framework
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gap = guarded.at_the_end if first % 2 else guarded.at_the_start
    guarded.guard(gap)
    with open(journal, "a", buffering=1) as out:
        for number in range(first, last):
            out.write(f"{number}\n")
            rng, (text, run) = Random(f"{seed} {number}"), case(texts, seed, number, share)
            out.write(json.dumps([number, *outcome(text, run, rng, gap)]) + "\n")


def case(texts: list[str], seed: int, number: int, share: float) -> tuple[str, bool]:
    """(the text of this number, whether it is run where it is accepted)."""
    from robustness.mutations import mutated
    rng = Random(f"{seed}/{number}")
    text = mutated(texts, rng)
    return text, rng.random() < share


def outcome(text: str, run: bool, rng: Random, gap: Any) -> tuple[str, str]:
    """(what became of a text, what was said)."""
    from tenon.errors import GraphError, TenonError
    from tenon.graph.text import parse_graph
    from tenon.graph.verify import verify
    try:
        with within(SECONDS_TO_READ):
            graph = verify(parse_graph(text))
    except GraphError:
        return "refused", ""
    except Stopped:
        return "slow to read", ""
    except BaseException as error:
        return "internal", described(error)
    if not run:
        return "accepted", ""
    try:
        with within(SECONDS_TO_RUN):
            return ran(graph, rng, gap)
    except Stopped:
        return "stopped", ""
    except TenonError as error:
        return "failed", error.what[:200]
    except BaseException as error:
        return "internal", described(error)


def described(error: BaseException) -> str:
    import traceback
    return "".join(traceback.format_exception(error))[-1500:]


def ran(graph: Any, rng: Random, gap: Any) -> tuple[str, str]:
    """Compile and run a graph on random arrays, unless they are too large."""
    import numpy as np

    import guarded
    from tenon.dims.symbolic_dim import evaluate
    from tenon.graph.interpret import concrete_type
    from tenon.pipeline import compile
    program = compile(graph)
    sizes = {name: rng.choice((2, 3, 5, 8)) for name in graph.symbols()}
    with contextlib.suppress(ArithmeticError):
        if any(evaluate(x.type.size, sizes) > MAX_ELEMENTS for x in values(graph)):
            return "large", ""
    numbers = np.random.default_rng(rng.getrandbits(32))
    arrays = [array_of(concrete_type(p.type, sizes), numbers) for p in graph.params]
    program.run([guarded.guarded(x, gap) for x in arrays])
    return "ran", ""


def values(graph: Any) -> Iterator[Any]:
    """The values of a graph and of those within."""
    yield from graph.params
    for node in graph.nodes:
        yield from node.outputs
        for body in node.graphs:
            yield from values(body)


def array_of(type: Any, rng: Any) -> Any:
    """Numbers of all kinds; mostly small, as indices are."""
    import numpy as np
    shape = tuple(max(0, n) for n in type.shape)
    match type.dtype.kind:
        case "b":
            return rng.integers(0, 2, shape).astype(bool)
        case "i" | "u":
            high = 4 if rng.random() < 0.6 else min(np.iinfo(type.dtype.numpy).max, 1 << 40)
            return rng.integers(0 if type.dtype.kind == "u" else -2, high, shape).astype(type.dtype.numpy)
    found = rng.standard_normal(shape)
    found = np.where(rng.random(shape) < 0.05, np.inf, found) if rng.random() < 0.2 else found
    found = found + 1j * rng.standard_normal(shape) if type.dtype.kind == "c" else found
    with np.errstate(all="ignore"):
        return np.asarray(found).astype(type.dtype.numpy)


# ---------------------------------------------------------------- the parent

@dataclass
class Found:
    """How often what happened, and the texts of which something is to be mended: (number, what, what was said)."""

    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    bad: list[tuple[int, str, str]] = field(default_factory=list)


def findings(count: int, seed: int, share: float, seconds: float = float("inf"), texts: list[str] | None = None,
             also: Sequence[str] = ()) -> Found:
    """What becomes of the texts of a seed, as far as so many seconds of the processor go.

    `share` of those that are accepted are run; `also` says what else is of interest.
    """
    found, first = Found(), 0
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus.json")
        corpus.write_text(json.dumps(texts_of(folder) if texts is None else texts))
        while first < count and seconds > 0:
            worker = Worker(folder, corpus, seed, first, count, share)
            first = _follow(worker, found, seconds, also)
            seconds -= worker.used
    return found


def texts_of(folder: str) -> list[str]:
    """The corpus, made in a process of its own."""
    at = os.path.join(folder, "texts")
    code = f"import sys, json; sys.path[:0] = {PATHS!r}; from robustness.graph_texts import corpus; " \
           "json.dump(corpus(), open(sys.argv[1], 'w'))"
    subprocess.run([sys.executable, "-c", code, at], check=True)
    found: list[str] = json.loads(Path(at).read_text())
    return found


class Worker:
    """A process that goes through texts from a number on."""

    def __init__(self, folder: str, corpus: Path, seed: int, first: int, count: int, share: float):
        self.first, self.count, self.used = first, count, 0.0
        self.journal, self.said = (Path(folder, f"{name}{first}") for name in ("journal", "said"))
        self.journal.touch()
        with open(self.said, "w") as said:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE), "--worker", str(self.journal), "--corpus", str(corpus), "--seed", str(seed),
                 "--first", str(first), "--count", str(count), "--run", str(share)], stdout=said, stderr=said,
                env=os.environ | {"TENON_CACHE": os.path.join(folder, "code"), "OPENBLAS_NUM_THREADS": "1"})

    def spent(self) -> tuple[float, float]:
        """Seconds of the processor so far, and of the clock."""
        with contextlib.suppress(OSError, IndexError):
            ticks = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
            self.used = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
        return self.used, time.monotonic()

    def hangs(self, since: tuple[float, float]) -> bool:
        """Whether it has been at one text for too long."""
        used, now = self.spent()
        return used - since[0] > HANGS or now - since[1] > WAITS

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def _follow(worker: Worker, found: Found, seconds: float, also: Sequence[str]) -> int:
    """Read what a worker writes until it ends; the number at which the next one begins."""
    at, since, done = worker.first, worker.spent(), worker.first
    with open(worker.journal) as journal:
        while True:
            line = journal.readline()
            if line.endswith("]\n"):
                at, what, said = json.loads(line)
                found.counts[what] += 1
                done, since = at + 1, worker.spent()
                if what not in GOOD or what in also:
                    found.bad.append((at, what, said))
            elif line:
                at = int(line)
            elif worker.process.poll() is not None:
                break
            elif worker.spent()[0] > seconds:
                worker.end()
                return worker.count
            elif worker.hangs(since):
                worker.end()
                found.bad.append((at, "hang", ""))
                return at + 1
            else:
                time.sleep(0.05)
    if worker.process.returncode:
        found.bad.append((at, f"crash {worker.process.returncode}", worker.said.read_text()[-1500:]))
        return max(at, done) + (at >= done)
    return worker.count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", type=float, default=0.1, help="of those accepted, how many are compiled and run")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", type=int, help="print the text of this number")
    parser.add_argument("--also", nargs="*", default=[], help="what else to show: failed, stopped")
    parser.add_argument("--worker")
    parser.add_argument("--corpus")
    given = parser.parse_args()
    sys.path[:0] = PATHS
    texts = json.loads(Path(given.corpus).read_text()) if given.corpus else None
    if given.worker:
        faulthandler.enable()
        work(texts or [], given.seed, given.first, given.count, given.run, given.worker)
    elif given.show is not None:
        if texts is None:
            with tempfile.TemporaryDirectory() as folder:
                texts = texts_of(folder)
        print(case(texts, given.seed, given.show, given.run)[0])
    else:
        found = findings(given.count, given.seed, given.run, given.minutes * 60, texts, given.also)
        for number, what, said in found.bad:
            print(f"--- {number}: {what}\n{said}")
        print(dict(found.counts))
        sys.exit(bool(found.bad))


if __name__ == "__main__":
    main()
