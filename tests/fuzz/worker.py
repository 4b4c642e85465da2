"""Seeds -> verdicts, in a process of its own: `python -m fuzz.worker judge FIRST COUNT JOURNAL`.

Each program is announced in the journal before it runs, so that one that ends the process, or never ends, is known.
"""

from __future__ import annotations

import gc
import json
import sys
from typing import Any

from fuzz import shrink
from fuzz.generate import generate
from fuzz.judge import judge


def judge_seeds(first: int, count: int, journal: str) -> None:
    gc.freeze()     # what was loaded stays: a twentieth of the time
    with open(journal, "a", encoding="utf-8", buffering=1) as file:
        for seed in range(first, first + count):
            file.write(json.dumps({"begun": seed}) + "\n")
            file.write(json.dumps({"seed": seed} | verdict(seed)) + "\n")


def verdict(seed: int) -> dict[str, Any]:
    """What came of a seed, as plain data."""
    program = generate(seed)
    found = judge(program.source, f"<program of seed {seed}>")
    failure = found.failure
    return {"valid": found.valid, "graph_breaks": found.graph_breaks, "by_pytorch": found.by_pytorch,
            "operators": sorted(set(found.operators)), "transform": program.transform,
            "failure": [failure.kind, failure.detail] if failure else None}


def shrink_seed(seed: int, kind: str, detail: str, seconds: float, answer: str) -> None:
    with open(answer, "w", encoding="utf-8") as file:
        json.dump(shrink.main(seed, kind, detail, seconds), file)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["judge", first, count, journal]:
            judge_seeds(int(first), int(count), journal)
        case ["shrink", seed, kind, detail, seconds, answer]:
            shrink_seed(int(seed), kind, detail, float(seconds), answer)
