"""Every program of the corpus is right under `tn.jit`, and one graph but for those with a reason and of `not_yet.txt`.

A program with another verdict fails until `pytest tests/capture --update-golden` has written it.
"""

from pathlib import Path

import pytest

from capture.adapters import tenon
from capture.corpus import Program, everything
from capture.runner import FELL_BACK, ONE_GRAPH, judge

SYSTEM = tenon()
PROGRAMS = everything(SYSTEM.operations)
NOT_YET = Path(__file__).parent / "not_yet.txt"
SECONDS = 60.0


def expected() -> dict[str, str]:
    """The programs that are not yet what they could be, and what becomes of them."""
    rows = [line.split(": ", 1) for line in NOT_YET.read_text().splitlines() if line and not line.startswith("#")]
    return dict(rows)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.path)
def test_program(program: Program, request: pytest.FixtureRequest) -> None:
    verdict = judge(program, SYSTEM, SECONDS)
    if request.config.getoption("--update-golden"):
        update(program.path, verdict.word)
    want = expected().get(program.path, best(program))
    assert verdict.word == want, verdict.detail


def best(program: Program) -> str:
    """What could become of a program."""
    return FELL_BACK if program.not_one_graph else ONE_GRAPH


def update(path: str, word: str) -> None:
    """Write today's verdict."""
    rows = expected() | {path: word}
    known = {p.path: best(p) for p in PROGRAMS}
    head = [line for line in NOT_YET.read_text().splitlines() if line.startswith("#")]
    body = sorted(f"{p}: {w}" for p, w in rows.items() if p in known and w != known[p])
    NOT_YET.write_text("\n".join([*head, *body]) + "\n")


def test_the_list_names_programs_of_the_corpus() -> None:
    assert expected().keys() <= {p.path for p in PROGRAMS}
    assert len({p.path for p in PROGRAMS}) == len(PROGRAMS)
