"""Operators x shapes x element types beside PyTorch, on one core: where Tenon is behind, the worst first.

    TENON_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.sweep [--seconds 0.1] [--only softmax] [--above 1.2]

The rows of the other tables are what networks do; these are all the rest (`benchmarks/sweep_cases.py`).  A function is
compiled by Tenon; PyTorch does it eagerly, which is its best for nearly all of them, since each is an operator or two.
A line has the ratio of the times, both times, and the row.  Results that differ are told, and rows that fail.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tenon as tn
from benchmarks.reductions import leaves
from benchmarks.sweep_cases import Case, cases
from benchmarks.timing import compare, use_one_core
from tenon.config import config


@dataclass(frozen=True)
class Line:
    """Seconds of one case in both libraries, and what is wrong with it."""

    case: Case
    tenon: float
    torch: float
    wrong: str = ""

    @property
    def ratio(self) -> float:
        return self.tenon / self.torch

    def __str__(self) -> str:
        return f"{self.ratio:6.2f} {self.tenon * 1e6:9.0f} {self.torch * 1e6:9.0f}  {self.case}  {self.wrong}".rstrip()


def runs_of(case: Case) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The compiled case, and PyTorch's, on the same inputs; with a gradient, on the same seed of it."""
    torch: Any = importlib.import_module("torch")
    arrays = [i.array(k) for k, i in enumerate(case.inputs)]
    theirs = [torch.from_numpy(a).to(getattr(torch, i.dtype)) for a, i in zip(arrays, case.inputs, strict=True)]
    ours = [tn.asarray(a).astype(getattr(tn, i.dtype)) for a, i in zip(arrays, case.inputs, strict=True)]
    function = case.torch or case.tenon
    if not case.gradient:
        changing, weights = ours[:case.changing], [x * 1 for x in ours[case.changing:]]   # arrays of nobody else's
        compiled = tn.jit(lambda *inputs: case.tenon(tn, *inputs, *weights))
        return lambda: compiled(*changing), lambda: function(torch, *theirs)
    seed = np.random.default_rng(9).standard_normal(tuple(function(torch, *theirs).shape)).astype(arrays[0].dtype)
    wanted = [x.requires_grad_() for x in theirs if x.is_floating_point()]
    pulled, given, backward = tn.jit(pullback(case)), tn.asarray(seed), torch.from_numpy(seed)

    def run() -> Any:
        result = function(torch, *theirs)
        return result, torch.autograd.grad(result, wanted, backward)
    return lambda: pulled(given, *ours), run


def pullback(case: Case) -> Callable[..., Any]:
    """The result and the gradients of all inputs that have one."""
    def pulled(seed: Any, *inputs: Any) -> Any:
        floats = [k for k, x in enumerate(inputs) if x.dtype.kind == "f"]

        def of_floats(*chosen: Any) -> Any:
            every = list(inputs)
            for k, x in zip(floats, chosen, strict=True):
                every[k] = x
            return case.tenon(tn, *every)
        result, pull = tn.vjp(of_floats, *(inputs[k] for k in floats))
        return result, pull(seed)
    return pulled


def measured(case: Case, seconds: float) -> Line:
    """One line; what a case cannot do is told in it."""
    try:
        ours, theirs = runs_of(case)
        wrong = "" if case.random else disagreement(ours(), theirs())
        times = compare({"tenon": ours, "torch": theirs}, seconds, least=5)
    except Exception as error:              # the others are to be measured all the same
        return Line(case, float("nan"), float("nan"), f"FAILS {type(error).__name__}: {str(error)[:200]}")
    return Line(case, times["tenon"], times["torch"], wrong)


def disagreement(ours: Any, theirs: Any) -> str:
    """What is wrong with our results; what halves and long sums round differently is not."""
    for a, b in zip(numbers(ours), numbers(theirs), strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"DIFFERS: {a.dtype}{list(a.shape)}, PyTorch {b.dtype}{list(b.shape)}"
        scale = np.max(np.abs(b), initial=0, where=np.isfinite(b)) if b.size else 0
        if not np.allclose(a, b, rtol=2e-2, atol=2e-2 * float(scale) + 1e-6, equal_nan=True):
            return "DIFFERS"
    return ""


def numbers(found: Any) -> list[np.ndarray]:
    """The arrays of nested results; NumPy has no bfloat16."""
    def plain(x: Any) -> Any:
        if isinstance(x, (tuple, list)):
            return [plain(part) for part in x]
        if isinstance(x, tn.Tensor):
            return x.astype(tn.float32).numpy() if x.dtype is tn.bfloat16 else x.numpy()
        x = x.detach()
        return (x.float() if str(x.dtype) == "torch.bfloat16" else x).numpy()
    return leaves(plain(found))


def table(lines: Iterable[Line], above: float = 0.0) -> str:
    """The lines with a ratio above so much, and those where something is wrong, the worst first."""
    shown = [line for line in lines if line.wrong or line.ratio > above]
    found = sorted(shown, key=lambda line: -line.ratio if line.ratio == line.ratio else -np.inf)
    return "\n".join([" ratio  Tenon us PyTorch us", *map(str, found)])


def main(arguments: list[str] | None = None) -> None:
    """Measure what is chosen, print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=0.1, help="for each row")
    options.add_argument("--only", default="", help="part of the text of the rows to run")
    options.add_argument("--above", type=float, default=0.0, help="leave out rows with a smaller ratio")
    given = options.parse_args(arguments)
    use_one_core()
    importlib.import_module("torch").set_num_threads(config().threads)
    chosen = [case for case in cases() if given.only in str(case)]
    lines = []
    for case in chosen:
        lines.append(measured(case, given.seconds))
        print(lines[-1], file=sys.stderr, flush=True)       # how far it has come
    print(table(lines, given.above))
    behind = sum(line.ratio > 1 for line in lines)
    print(f"{behind} of {len(lines)} rows are behind PyTorch")


if __name__ == "__main__":
    main()
