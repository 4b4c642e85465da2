"""Graph before and after a pass -> an error that names the pass, where the two do not compute the same values.

    watch = PassWatch(graph)
    for name, run in passes:
        graph = run(graph)
        watch.after(name, graph)            # raises ChangedValue, with a folder from which the error can be repeated

This is translation validation (Pnueli, Siegel and Singerman, 1998): not the pass is proved, but each of its results is
compared with what it was made of, by the interpreter on inputs of `sample_inputs`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextvars import Context
from pathlib import Path

import numpy as np

from tenon.dims.symbolic_dim import evaluate
from tenon.errors import CompilerDefect, GraphError, TenonError
from tenon.graph.compare import difference, narrowest
from tenon.graph.interpret import OutOfPatience, interpret, with_patience
from tenon.graph.ir import Graph
from tenon.graph.partition import has_effect
from tenon.graph.sample_inputs import SampleInputs, sample_inputs
from tenon.graph.text import parse_graph, print_graph
from tenon.observe import emit

MAX_ELEMENTS = 1 << 22      # of all values of a graph that is tried
MAX_NODES = 20_000          # that are run, those of loops in every iteration
# Passes that compute the same nodes, in another order or fewer of them: their bits are the same.
MOVING = frozenset((
    "drop_dead", "drop_barriers", "merge_duplicates", "hoist", "fuse", "schedule_nodes", "recompute"))

# Passes that multiply in another order, which infinities and NaN show; they are tried on numbers alone.
ON_NUMBERS = frozenset(("absorb_scales",))

SCRIPT = '''"""Shows that the pass {name} changes a value: of before.txt and after.txt, on inputs.npz."""
from pathlib import Path

from tenon.graph.validate import repeat

print(repeat(Path(__file__).parent) or "the same values")
'''


class ChangedValue(CompilerDefect):
    """A pass whose result computes something else."""


class PassWatch:
    """A graph that passes change, and what it computes."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.runs: list[tuple[SampleInputs, list[np.ndarray]]] = []
        if any(map(has_effect, graph.nodes)) or _elements(graph) > MAX_ELEMENTS:
            emit("validate.skipped", graph=graph.name)
            return
        for sample in sample_inputs(graph):
            results = results_of(graph, sample)
            if results is not None:             # else the program raises an error for these inputs, or takes too long
                self.runs.append((sample, results))

    def after(self, name: str, graph: Graph) -> None:
        """Compare what the graph computes now with what it did before a pass."""
        before, self.graph = self.graph, graph
        if graph is before:
            return
        runs = []
        for sample, expected in self.runs:
            found = results_of(graph, sample)
            if found is None:
                said: str | None = "it raises an error, or does not end"
            else:
                said = _differences(expected, found, name in MOVING, narrowest(graph))
                runs.append((sample, found))
            if said is not None and not (name in ON_NUMBERS and sample.kind == "special"):
                folder = write_reproducer(name, before, graph, sample)
                raise ChangedValue(f"the pass {name} changes a value of the graph {graph.name}: {said}, for {sample}",
                                   hint=f"python {folder / 'reproduce.py'} shows it again")
        self.runs = runs


def _differences(before: Sequence[np.ndarray], after: Sequence[np.ndarray], exact: bool, resolved: int) -> str | None:
    if len(before) != len(after):
        return f"{len(before)} results before, {len(after)} after"
    for k, (one, other) in enumerate(zip(before, after, strict=True)):
        said = difference(np.asarray(one), np.asarray(other), exact, resolved)
        if said is not None:
            return f"result {k}, {said}"
    return None


def results_of(graph: Graph, sample: SampleInputs) -> list[np.ndarray] | None:
    """What the interpreter says, in a context where no capture asks about sizes; None where it raises."""
    def run() -> list[np.ndarray]:
        with with_patience(MAX_NODES):
            return interpret(graph, [x.copy() for x in sample.arrays], sample.sizes)
    try:
        return Context().run(run)
    except (TenonError, OutOfPatience, ArithmeticError, LookupError, ValueError):
        return None


def _elements(graph: Graph) -> int:
    """How many elements all values have, for the largest sizes that are tried."""
    sizes = dict.fromkeys(graph.symbols(), 17)
    return sum(evaluate(x.type.size, sizes) for node in graph.nodes for x in node.outputs)


# ---------------------------------------------------------------- to see it again

def write_reproducer(name: str, before: Graph, after: Graph, sample: SampleInputs) -> Path:
    """A folder with both graphs as text, the inputs, and a program that compares them."""
    folder = Path(tempfile.mkdtemp(prefix=f"tenon-{name}-"))
    for stem, graph in ("before", before), ("after", after):
        try:
            text = print_graph(graph, locations=False)
        except GraphError as error:         # an attribute without text form
            text = f"# {error}\n"
        (folder / f"{stem}.txt").write_text(text, encoding="utf-8")
    arrays = {f"input{k}": x.view(np.uint8) if x.ndim else x.reshape(1).view(np.uint8)
              for k, x in enumerate(map(np.ascontiguousarray, sample.arrays))}
    shapes = {f"shape{k}": np.array(x.shape, np.int64) for k, x in enumerate(sample.arrays)}
    np.savez(folder / "inputs.npz", **arrays, **shapes)  # type: ignore[arg-type]
    (folder / "reproduce.py").write_text(SCRIPT.format(name=name), encoding="utf-8")
    return folder


def repeat(folder: Path) -> str | None:
    """How the two graphs of a reproducer differ on its inputs."""
    before, after = (parse_graph((folder / f"{stem}.txt").read_text(encoding="utf-8")) for stem in ("before", "after"))
    with np.load(folder / "inputs.npz") as saved:
        arrays = [saved[f"input{k}"].reshape(-1).view(p.dtype.numpy).reshape(saved[f"shape{k}"])
                  for k, p in enumerate(before.params)]
    return _differences(interpret(before, arrays), interpret(after, arrays), exact=False,
                        resolved=narrowest(after))
