"""A program's source -> what is wrong with it, if anything.

Eager code, compiled code and the reference interpreter compute the same; compiled code computes the same bits again,
and on two threads; a compiled function called with other sizes computes what eager code does.  So does PyTorch, where it is
installed and has what the program calls.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tenon as tn
from fuzz.program import load
from fuzz.rounding import Expected, expected, wide_run, widened
from fuzz.theirs import KNOWN, theirs
from tenon.capture.result_leaves import FromGraph
from tenon.errors import OverBudget
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph
from tenon.records import replace

FEW, MANY, MOST = 4, 24, 200    # tries of roundings: at first, then, and before a program is called wrong
DERIVATIVES = re.compile(r"tn\.(grad|value_and_grad|jvp|vjp|hessian)\(|\.backward\(\)")
NEAR = 8.0              # so many units in the last place are looked at no further


@dataclass(frozen=True)
class Failure:
    """What is wrong: a word that shrinking keeps, and a sentence."""

    kind: str
    detail: str


@dataclass
class Verdict:
    """What came of a program."""

    failure: Failure | None = None
    valid: bool = True              # the program ran eagerly
    graph_breaks: bool = False      # not as one graph, so there is no reference
    by_pytorch: bool = False        # PyTorch has computed it too
    operators: list[str] = field(default_factory=list)


class Wrong(Exception):
    """Something is wrong; how is said by its failure."""

    def __init__(self, kind: str, detail: str):
        super().__init__(kind, detail)
        self.failure = Failure(kind, detail)


def judge(source: str, name: str = "<fuzzed program>") -> Verdict:
    """Run a program in all ways and compare."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = load(source, name)
        return Judge(module.program, module.CALLS, source, getattr(module, "BUDGET", None)).verdict()


class Judge:
    """One program: `function` and the arrays of its calls."""

    def __init__(self, function: Callable[..., Any], calls: Sequence[Sequence[np.ndarray]], source: str,
                 budget: float | None = None):
        self.function, self.calls, self.source = function, calls, source
        self.jitted = tn.jit(function, memory_budget=budget)
        self.found = Verdict()

    def verdict(self) -> Verdict:
        try:
            for number, arrays in enumerate(self.calls):
                self.call(number, arrays)
        except Wrong as wrong:
            self.found.failure = wrong.failure
        return self.found

    def call(self, number: int, arrays: Sequence[np.ndarray]) -> None:
        try:
            eager = outcome(self.function, arrays)
        except Exception:       # not a program, with these sizes
            self.found.valid &= number > 0
            return
        compiled = self.compiled("compiled", arrays)
        for kind, threads in (("second call", 1), ("threads", 2)):
            with on_threads(threads):
                same_bits(kind, compiled, self.compiled(kind, arrays))
        self.compare(eager, compiled, arrays)

    def compiled(self, kind: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        try:
            try:
                found = outcome(self.jitted, arrays)
            except OverBudget:          # what loops keep cannot be computed again
                self.jitted = tn.jit(self.function)
                found = outcome(self.jitted, arrays)
            self.run_failing_graphs()
        except Exception as error:
            raise Wrong(f"{kind} raises {type(error).__name__}", str(error)[:500]) from error
        return found

    def run_failing_graphs(self) -> None:
        """Raise the error of a graph that failed, for which the function was run instead without a word."""
        for captured in (c for record in self.jitted.records.values() for c in record.captures):
            if captured.failures and captured.failed is None:
                assert captured.program is not None
                raise RuntimeError("a graph failed, and the function was run instead")
        for record in self.jitted.records.values():
            if record.eager is not None and record.eager.bug:
                raise RuntimeError(f"the function runs with graph breaks, by a mistake of Tenon's: {record.eager.what}")

    def compare(self, eager: Sequence[np.ndarray], compiled: Sequence[np.ndarray], arrays: Sequence[np.ndarray]) -> None:
        for k, (x, y) in enumerate(zip(eager, compiled, strict=True)):
            if x.dtype != y.dtype or x.shape != y.shape:
                raise Wrong("types", f"result {k} is {y.dtype}{list(y.shape)}, eagerly {x.dtype}{list(x.shape)}")
        found = self.graph(arrays)
        if found is None or len(found[0].results) != len(eager):
            self.found.graph_breaks = True
            roughly_equal(eager, compiled)
            return
        graph, given = found
        self.found.operators += operators(graph)
        try:
            native = interpret(graph, given)
        except Exception as error:
            raise Wrong(f"reference raises {type(error).__name__}", str(error)[:500]) from error
        for k, (x, y, r) in enumerate(zip(eager, compiled, native, strict=True)):
            if x.shape != r.shape or x.dtype != r.dtype:
                raise Wrong("reference types", f"result {k} is {r.dtype}{list(r.shape)}, eagerly {x.dtype}{list(x.shape)}")
            if not (near(x, r) and near(y, r)):
                self.decide(graph, given, native, eager, compiled)
                break
        if KNOWN:
            self.ask_pytorch(graph, arrays, given, native)

    def graph(self, arrays: Sequence[np.ndarray]) -> tuple[Graph, list[np.ndarray]] | None:
        """The captured graph of what is returned and what its parameters are, constants of the function among them.

        One value may be returned twice, and stands in the graph once.  None if there is no such graph.
        """
        tensors = list(map(tn.asarray, arrays))
        _, captured = self.jitted.look(*tensors)
        if captured is None:
            return None
        given = zip(captured.inputs.holders(tensors), captured.graph.params, strict=True)
        leaves = getattr(captured.output, "leaves", (captured.output,))
        places = [leaf.index for leaf in leaves if isinstance(leaf, FromGraph)]
        graph = replace(captured.graph, results=tuple(captured.graph.results[k] for k in places))
        return graph, [np.array(x.detach().numpy()).astype(value.dtype.numpy) for x, value in given]

    def decide(self, graph: Graph, arrays: Sequence[np.ndarray], native: Sequence[np.ndarray],
               eager: Sequence[np.ndarray], compiled: Sequence[np.ndarray]) -> None:
        """Whether roundings explain the distances; with more of them before anything is called wrong."""
        sides = {"compiled": compiled, "eager": eager}
        for tries, apart in ((FEW, False), (MANY, False), (MANY, True), (MOST, True)):
            allowed = expected(graph, arrays, native, tries, apart)
            failing = {side: far for side, found in sides.items() if (far := farthest(found, allowed))}
            if not failing:
                return
        side = "both" if len(failing) == 2 else next(iter(failing))
        raise Wrong(f"{side} wrong", "; ".join(f"{name}: {text}" for name, text in failing.items()))

    def ask_pytorch(self, graph: Graph, arguments: Sequence[np.ndarray], arrays: Sequence[np.ndarray],
                    native: Sequence[np.ndarray]) -> None:
        """Whether PyTorch computes the same in float64, where it can."""
        found = theirs(self.source, arguments)
        if found is None or len(found) != len(native):
            return
        self.found.by_pytorch = True
        ours = wide_run(graph, arrays, 0, 0.0, False)
        for k, (x, y) in enumerate(zip(found, ours, strict=True)):
            if x.shape != y.shape:
                raise Wrong("PyTorch differs", f"result {k} is of shape {list(y.shape)}, PyTorch's {list(x.shape)}")
        if DERIVATIVES.search(self.source):     # of what is infinite: formulas that are right give NaN, or do not
            found = [np.where(np.isnan(x) == np.isnan(y), x, y) if x.dtype.kind in "fc" else x
                     for x, y in zip(found, ours, strict=True)]
        close = [np.allclose(widened(x), widened(y), 1e-6, 1e-6, equal_nan=True) for x, y in zip(found, ours, strict=True)]
        if not all(close) and (far := farthest(found, expected(graph, arrays, native, MANY, True))):
            raise Wrong("PyTorch differs", f"by PyTorch {far}")


def outcome(function: Callable[..., Any], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results as arrays of their own; the arguments are fresh, and none requires a gradient."""
    results = function(*(tn.asarray(np.copy(a, order="K")) if isinstance(a, np.ndarray) else a for a in arrays))
    return [np.array(x.detach().numpy() if isinstance(x, tn.Tensor) else x) for x in flat(results)]


def flat(results: Any) -> list[Any]:
    """The tensors of a nest; what is None, as tangents of whole numbers are, is none."""
    if results is None:
        return []
    if isinstance(results, (tuple, list)):
        return [x for part in results for x in flat(part)]
    return [results]


class on_threads:
    """Programs run on so many threads in this block."""

    def __init__(self, threads: int):
        self.threads, self.before = threads, tn.get_num_threads()

    def __enter__(self) -> None:
        tn.set_num_threads(self.threads)

    def __exit__(self, *error: object) -> None:
        tn.set_num_threads(self.before)


def same_bits(kind: str, first: Sequence[np.ndarray], again: Sequence[np.ndarray]) -> None:
    for k, (x, y) in enumerate(zip(first, again, strict=True)):
        if x.tobytes() != y.tobytes():
            raise Wrong(f"{kind} differs", f"result {k} has other bits: {sample(x)} and {sample(y)}")


def near(x: np.ndarray, r: np.ndarray) -> bool:
    """Whether the elements are the reference's up to a few units in the last place."""
    if x.dtype.kind in "biu":
        return bool(np.array_equal(x, r))
    with np.errstate(all="ignore"):
        unit = 2.0 ** -53 if x.dtype.itemsize >= 8 and x.dtype.kind == "f" else 2.0 ** -24
        wide, other = widened(x), widened(r)
        return bool(np.all((np.abs(wide - other) <= NEAR * unit * np.abs(other)) | (wide == other)
                           | (np.isnan(wide) & np.isnan(other))))


def roughly_equal(eager: Sequence[np.ndarray], compiled: Sequence[np.ndarray]) -> None:
    """Without a graph there is no reference: only what no rounding explains is wrong."""
    for k, (x, y) in enumerate(zip(eager, compiled, strict=True)):
        if x.dtype.kind in "fcV" and x.size:
            a, b = widened(x), widened(y)
            with np.errstate(all="ignore"):
                far = np.abs(a - b) > 0.1 * np.nanmax(np.where(np.isfinite(a), np.abs(a), 0), initial=1e-3)
            if np.any(far & np.isfinite(a)):
                raise Wrong("with graph breaks wrong", f"result {k}: {sample(y)}, eagerly {sample(x)}")


def farthest(found: Sequence[np.ndarray], allowed: Sequence[Expected]) -> str:
    """The element that is farthest beyond what is allowed, as text; empty if there is none."""
    for k, (x, want) in enumerate(zip(found, allowed, strict=True)):
        wide = widened(x)
        with np.errstate(all="ignore"):
            if x.dtype.kind in "biu":
                bad = wide != want.value
            else:
                same = (wide == want.value) | (np.isnan(wide) & np.isnan(want.value))
                bad = ~(same | (np.abs(wide - want.value) <= want.allowed))
            bad &= want.decided
            bad &= ~want.overflows | np.isfinite(wide)
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            return (f"result {k}{list(at)} of {list(x.shape)} is {x[at]}, should be {want.value[at]} "
                    f"within {want.allowed[at]:.2g}; {int(bad.sum())} of {bad.size} elements wrong")
    return ""


def operators(graph: Graph) -> list[str]:
    """The names of all operators in a graph and the graphs inside of it."""
    return [name for node in graph.nodes for name in
            (node.op.name, *(inner for body in node.graphs for inner in operators(body)))]


def sample(x: np.ndarray) -> str:
    return np.array2string(x.ravel()[:6], precision=4, threshold=6)
