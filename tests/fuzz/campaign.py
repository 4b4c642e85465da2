"""Minutes and a seed -> a report: worker processes judge programs, and what is wrong is shrunk and kept.

A worker that crashes or hangs costs its one program; a new one goes on behind it.  Batches are numbered: which programs
one holds, and the length of its vectors, are the same again wherever the seed is, however many workers there are.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.generate import LEFT_OUT, allowed
from fuzz.shrink import judged_apart, processor_seconds
from tenon.graph.op import OPS
from tenon.llvm.host_target import available

ROOT = Path(__file__).parent.parent.parent
FOUND = Path(__file__).parent / "found"
BATCH = 600             # programs of a worker: its start, PyTorch's above all, takes as long as ten of them
PATIENCE = 60.0         # seconds of the processor for one program
ASLEEP = 900.0          # seconds in which it may do nothing, for others do
NEEDS = {"512": "avx512f", "256": "avx2", "128": "sse4.2"}


@dataclass
class Found:
    """A failure: its seed, the length of vectors, and a source that shows it."""

    seed: int
    vectors: str
    kind: str
    detail: str
    source: str

    @property
    def name(self) -> str:
        return f"{self.kind.replace(' ', '_').lower()}_{hashlib.sha256(self.source.encode()).hexdigest()[:8]}"

    @property
    def text(self) -> str:
        """The file that is kept."""
        detail = " ".join(self.detail.replace("\\", " ").replace('"', "'").split())
        return f'"""{self.kind}: {detail}\n\nSeed {self.seed}.\n"""\n\n{self.source}\n\nVECTORS = {self.vectors}\n'


@dataclass
class Report:
    """What a run saw."""

    programs: int = 0
    invalid: int = 0
    by_pytorch: int = 0
    graph_breaks: int = 0
    seconds: float = 0.0
    operators: Counter[str] = field(default_factory=Counter)
    transforms: Counter[str] = field(default_factory=Counter)
    found: list[Found] = field(default_factory=list)

    def add(self, line: dict[str, Any]) -> None:
        self.programs += 1
        self.invalid += not line["valid"]
        self.graph_breaks += line["graph_breaks"]
        self.by_pytorch += line["by_pytorch"]
        self.operators.update(line["operators"])
        self.transforms[line["transform"]] += 1

    def __str__(self) -> str:
        never = sorted(name for name, op in OPS.items() if name not in self.operators and allowed(op))
        often = ", ".join(f"{name} {count}" for name, count in self.operators.most_common())
        kinds = ", ".join(f"{name} {count}" for name, count in self.transforms.most_common())
        return "\n".join([
            f"programs: {self.programs} in {self.seconds:.0f} s, {self.programs / max(self.seconds, 1):.1f} a second; "
            f"{self.invalid} invalid, {self.graph_breaks} with graph breaks, {self.by_pytorch} beside PyTorch",
            f"transformations: {kinds}",
            f"operators reached: {len(self.operators)} ({often})",
            f"operators never reached: {', '.join(never) or 'none'}",
            f"left out: {', '.join(f'{name} ({why})' for name, why in LEFT_OUT.items())}",
            f"failures: {len(self.found)}",
            *(f"  seed {f.seed}, {f.vectors} bits, {f.kind}: {f.detail}" for f in self.found)])


class Campaign:
    """One run of the fuzzer, by so many workers at a time."""

    def __init__(self, seed: int, seconds: float, shrink_seconds: float = 90.0, keep: Path | None = FOUND, workers: int = 1):
        self.seed, self.seconds, self.shrink_seconds, self.keep = seed, seconds, shrink_seconds, keep
        self.workers, self.report, self.telling = workers, Report(), threading.Lock()
        self.lengths = [bits for bits, feature in NEEDS.items() if available().get(feature)] or ["512"]

    def run(self) -> Report:
        started = time.monotonic()
        self.end = started + self.seconds
        batches = itertools.count()
        with ThreadPoolExecutor(self.workers) as pool:
            for done in [pool.submit(self.work, batches) for _ in range(self.workers)]:
                done.result()
        self.report.seconds = time.monotonic() - started
        return self.report

    def work(self, batches: Iterator[int]) -> None:
        """Judge batches that nobody else has, until time runs out."""
        while time.monotonic() < self.end:
            batch = next(batches)
            first, vectors = self.seed * 1_000_000 + batch * BATCH, self.lengths[batch % len(self.lengths)]
            done = 0
            while done < BATCH and time.monotonic() < self.end:
                done += self.batch(first + done, BATCH - done, vectors)

    def batch(self, first: int, count: int, vectors: str) -> int:
        """Let a worker judge these seeds; how many it did, the one that ended it included."""
        with tempfile.TemporaryDirectory() as folder:
            journal = Path(folder) / "journal"
            journal.touch()
            ended = self.watch(start(["judge", str(first), str(count), str(journal)], vectors), journal)
            lines = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
        done = [line for line in lines if "seed" in line]
        with self.telling:
            for line in done:
                self.report.add(line)
        for line in done:
            if line["failure"]:
                self.failed(line["seed"], vectors, *line["failure"])
        begun = sum("begun" in line for line in lines)
        if ended and begun > len(done):
            self.failed(first + begun - 1, vectors, *ended)
        return max(begun, 1)

    def watch(self, worker: subprocess.Popen[bytes], journal: Path) -> tuple[str, str] | None:
        """Wait for a worker; how it ended, unless it came to its end or time ran out."""
        size, since, used = 0, time.monotonic(), processor_seconds(worker.pid)
        while worker.poll() is None:
            time.sleep(0.2)
            if journal.stat().st_size != size:
                size, since, used = journal.stat().st_size, time.monotonic(), processor_seconds(worker.pid)
            hangs = processor_seconds(worker.pid) - used > PATIENCE or time.monotonic() - since > ASLEEP
            if hangs or time.monotonic() > self.end:
                worker.kill()
                worker.wait()
                return ("hangs", f"no answer in {PATIENCE:g} seconds") if hangs else None
        if worker.returncode == 0:
            return None
        return ("crashes", f"by signal {-worker.returncode}") if worker.returncode < 0 else (
            "stops the fuzzer", f"exit status {worker.returncode}")

    def failed(self, seed: int, vectors: str, kind: str, detail: str) -> None:
        """Shrink a failure, and keep what is left."""
        with tempfile.TemporaryDirectory() as folder:
            answer = Path(folder) / "answer"
            arguments = ["shrink", str(seed), kind, detail, str(self.shrink_seconds), str(answer)]
            worker = start(arguments, vectors)
            try:
                worker.wait(self.shrink_seconds + ASLEEP)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            small = json.loads(answer.read_text(encoding="utf-8")) if answer.exists() and not worker.returncode else {
                "kind": kind, "detail": detail, "source": f"# the program of seed {seed} could not be shrunk\n"}
        found = Found(seed, vectors, small["kind"], small["detail"], small["source"])
        with self.telling:
            self.report.found.append(found)
            if self.keep is not None:
                (self.keep / f"{found.name}.py").write_text(found.text, encoding="utf-8")
            print(f"seed {seed}, {vectors} bits, {found.kind}: {found.detail}\n{found.source}", flush=True)


def start(arguments: Sequence[str], vectors: str) -> subprocess.Popen[bytes]:
    """A worker; nothing that it compiles is kept."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    environment = os.environ | {"PYTHONPATH": paths, "TENON_VECTORS": vectors, "TENON_CACHE": "off",
                                "TENON_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-m", "fuzz.worker", *arguments], env=environment, cwd=ROOT)


def run(files: Sequence[Path], minutes: float, seed: int | None, keep: Path | None, workers: int = 1) -> int:
    """Judge these files, or new programs for so many minutes; 1 if something is wrong."""
    if files:
        return replay(files)
    seed = int(time.time()) if seed is None else seed
    print(f"seed {seed}", flush=True)
    report = Campaign(seed, minutes * 60, keep=FOUND if keep is None else keep, workers=workers).run()
    print(report)
    return int(bool(report.found))


def replay(files: Sequence[Path]) -> int:
    """Judge files; 1 if one is wrong."""
    failures = {file: judged_apart(file.read_text(encoding="utf-8")) for file in files}
    for file, failure in failures.items():
        print(f"{file}: {f'{failure.kind}: {failure.detail}' if failure else 'right'}", flush=True)
    return int(any(failures.values()))
