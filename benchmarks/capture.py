"""The corpus of tests/capture under Tenon and, where installed, its peers: right, one graph, refused, different, crash.

    python -m benchmarks.capture [--systems tenon,torch.compile] [--only WORDS] [--detail] [--json FILE] [--seconds 60]

Every system runs the same programs in a process of its own, which is started again after a program that ended or
blocked it.
"""
import argparse
import json
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from capture.adapters import SYSTEMS  # noqa: E402
from capture.corpus import Program, everything  # noqa: E402
from capture.runner import CRASH, DIFFERENT, FELL_BACK, HANG, ONE_GRAPH, REFUSED, UNFIT, Verdict, judge  # noqa: E402

START = 120.0       # seconds for a process to import its library


class Anything(SimpleNamespace):
    """Operations for reading the list of programs, where none of them is called."""

    def __getattr__(self, name: str) -> object:
        return lambda *_, **__: None


def verdicts(system: str, programs: Sequence[Program], seconds: float) -> Iterator[tuple[Program, Verdict]]:
    """What becomes of each program under a system."""
    worker = None
    for program in programs:
        worker = worker or Worker(system, seconds)
        verdict = worker.judge(program)
        if verdict.word in (CRASH, HANG):
            worker.end()
            worker = None
        yield program, verdict
    if worker is not None:
        worker.end()


class Worker:
    """A process that judges programs, whose paths it reads, and writes a line of JSON for each."""

    def __init__(self, system: str, seconds: float):
        self.seconds = seconds
        command = [sys.executable, "-m", "benchmarks.capture", "--worker", system, "--seconds", str(seconds)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
                                        stderr=subprocess.DEVNULL)
        self._answer(START)

    def judge(self, program: Program) -> Verdict:
        """The verdict; a crash or a hang of the process is one."""
        assert self.process.stdin is not None
        self.process.stdin.write(program.path + "\n")
        self.process.stdin.flush()
        answer = self._answer(self.seconds + 10)
        if answer is None:
            return Verdict(HANG, "the process does not answer")
        return Verdict(*json.loads(answer)) if answer else Verdict(CRASH, f"exit status {self.process.wait()}")

    def _answer(self, seconds: float) -> str | None:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        return self.process.stdout.readline() if ready else None

    def end(self) -> None:
        """Stop the process."""
        self.process.kill()
        self.process.communicate()


def work(name: str, seconds: float) -> None:
    """Judge the programs whose paths come in."""
    out, sys.stdout = sys.stdout, sys.stderr
    system = SYSTEMS[name][1]()
    programs = {p.path: p for p in everything(system.operations)}
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        verdict = judge(programs[line.strip()], system, seconds)
        print(json.dumps([verdict.word, verdict.detail]), file=out, flush=True)


COLUMNS = {"right": (ONE_GRAPH, FELL_BACK), "one graph": (ONE_GRAPH,), "fell back": (FELL_BACK,), "refused": (REFUSED,),
           "different": (DIFFERENT,), "crash, hang": (CRASH, HANG), "not for it": (UNFIT,)}


def table(results: dict[str, dict[str, Verdict]]) -> Iterator[str]:
    """One row for each system."""
    yield f"{'':<26}{'programs':>10}" + "".join(f"{name:>13}" for name in COLUMNS)
    for system, found in results.items():
        count = Counter(verdict.word for verdict in found.values())
        numbers = [sum(count[word] for word in words) for words in COLUMNS.values()]
        yield f"{system:<26}{len(found):>10}" + "".join(f"{number:>13}" for number in numbers)


def by_category(results: dict[str, dict[str, Verdict]]) -> Iterator[str]:
    """Right, of them one graph, of how many; for every category and system."""
    categories = sorted({path.partition("/")[0] for found in results.values() for path in found})
    yield f"{'right / one graph / of':<26}" + "".join(f"{category:>13}" for category in categories)
    for system, found in results.items():
        cells = []
        for category in categories:
            mine = [verdict for path, verdict in found.items() if path.startswith(category + "/")]
            whole = sum(verdict.word == ONE_GRAPH for verdict in mine)
            cells.append(f"{sum(v.right for v in mine)}/{whole}/{len(mine)}")
        yield f"{system:<26}" + "".join(f"{cell:>13}" for cell in cells)


def detail(results: dict[str, dict[str, Verdict]]) -> Iterator[str]:
    """A line for every program that is not one graph."""
    for system, found in results.items():
        for path, verdict in found.items():
            if verdict.word != ONE_GRAPH:
                yield f"{system:<26}{verdict.word:<12}{path}: {verdict.detail[:200]}"


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--systems", default=",".join(SYSTEMS), help="of " + ", ".join(SYSTEMS))
    options.add_argument("--only", default="", help="programs with one of these words in their path")
    options.add_argument("--detail", action="store_true", help="a line for every program that is not one graph")
    options.add_argument("--json", type=Path, help="write all verdicts here")
    options.add_argument("--seconds", type=float, default=60.0, help="for a program, before it counts as a hang")
    options.add_argument("--worker", help=argparse.SUPPRESS)
    given = options.parse_args(arguments)
    if given.worker:
        return work(given.worker, given.seconds)
    words = given.only.split(",")
    programs = [p for p in everything(Anything()) if any(word in p.path for word in words)]
    results = {name: {program.path: verdict for program, verdict in verdicts(name, programs, given.seconds)}
               for name in given.systems.split(",") if find_spec(SYSTEMS[name][0])}
    print("\n".join(table(results)), "\n".join(by_category(results)), sep="\n\n")
    if given.detail:
        print("", *detail(results), sep="\n")
    if given.json:
        rows = {name: {path: [v.word, v.detail] for path, v in found.items()} for name, found in results.items()}
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
