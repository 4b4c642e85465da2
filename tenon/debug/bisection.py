"""A call -> the first pass or kernel that computes something else than the reference interpreter, with a reproducer.

    print(tn.debug.bisect(step, x, y))
    # the pass use_rsqrt changes a value: result 0, element [2]: ... before, ... after
    # python /tmp/tenon-use_rsqrt-k2x9/reproduce.py shows it again

The captured graph is interpreted on what the call is given, and so is what each pass makes of it.  Then the program is
run, and every kernel is compared with the interpreter on what it reads.  Nothing of the call is done but that.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextvars import Context
from pathlib import Path
from typing import Any

import numpy as np

from tenon.capture.captured import Captured
from tenon.capture.graph_breaks import Run
from tenon.capture.jitted import Jitted
from tenon.errors import CaptureError, CompilerDefect, Location, TenonError
from tenon.graph.compare import difference
from tenon.graph.interpret import bind_sizes, interpret, running
from tenon.graph.ir import CONSTANTS, Graph, Node, Value
from tenon.graph.sample_inputs import SampleInputs
from tenon.graph.text import parse_graph, print_graph
from tenon.graph.validate import MOVING, write_reproducer
from tenon.jit import jit
from tenon.ops.graph_calls import fused
from tenon.pipeline import CPU, ON_CONSTANTS, OPTIMIZE, native_program, passes_for, run_passes
from tenon.program.steps import HostStep, KernelStep, LookStep
from tenon.records import dataclass, field, replace
from tenon.runtime.instrumented_program import Halted, InstrumentedProgram, body_of, inputs_of, outputs_of
from tenon.runtime.program import Program
from tenon.runtime.run_frame import Frame
from tenon.tensor_state import in_memory

Array = np.ndarray[Any, Any]

KERNEL_SCRIPT = '''"""Shows that a kernel's code computes something else than its text, kernel.txt, on inputs.npz."""
from pathlib import Path

from tenon.debug.bisection import repeat_kernel

print(repeat_kernel(Path(__file__).parent) or "the same values")
'''


@dataclass(frozen=True)
class Bisection:
    """What was found: the first `stage` ("pass" or "kernel") that differs, its `name`, how, and where the code for it
    is; `stage` is "" where all is the same.  `reproducer` is a folder with the graph as text, inputs, a program."""

    function: str
    stage: str = ""
    name: str = ""
    said: str = ""
    where: Location | None = None
    reproducer: Path | None = None
    passes: tuple[str, ...] = ()
    kernels: int = 0

    def __str__(self) -> str:
        looked = f"{len(self.passes)} passes and {self.kernels} kernels were compared with the interpreter"
        if not self.stage:
            return f"{self.function}: {looked}, and all compute the same"
        rows = [f"{self.function}: the {self.stage} {self.name} changes a value: {self.said}"]
        rows += [self.where.excerpt()] if self.where is not None else []
        rows += [f"  {looked}", f"  python {self.reproducer}/reproduce.py shows it again"]
        return "\n".join(rows)

    __repr__ = __str__


def bisect(function: Any, *args: Any, **keywords: Any) -> Bisection:
    """Compare the graph of a call pass by pass, and its program kernel by kernel, with the reference interpreter.

    Nothing of the call is done: no assignment, no effect.  A function that is split is called once, and its pieces are
    compared one after the other.  Raises CaptureError for one of which nothing is compiled.

    >>> bisect(tn.jit(lambda x: tn.exp(x) * 2), tn.ones(3)).stage
    ''
    """
    jitted = getattr(function, "__func__", function)
    if not isinstance(jitted, Jitted):
        function = jit(function)
        jitted = getattr(function, "__func__", function)
    bound = (function.__self__, *args) if function is not jitted else args
    record, captured = jitted.look(*bound, **keywords)
    if captured is None:
        if record.split and jitted.is_split:
            return _by_piece(jitted, bound, keywords)
        raise CaptureError(f"{jitted.__name__}: {record.eager or record.full}")
    leaves = captured.leaves_of(bound, keywords)
    arguments = captured.arguments(leaves)
    holders = captured.inputs.holders(leaves if arguments is None else arguments)
    arrays = [np.array(in_memory(x.own.payload)) for x in holders]
    return _of_graph(captured, arrays)


def _of_graph(captured: Captured, arrays: Sequence[Array]) -> Bisection:
    found, done, graph = _by_pass(captured, arrays)
    return found if found is not None else _by_kernel(captured.graph.name, graph, arrays, done)


def _by_piece(jitted: Jitted, args: Sequence[Any], keywords: Mapping[str, Any]) -> Bisection:
    """The first piece of a function of which a pass or kernel is wrong, in the order in which a call runs them."""
    runs: list[tuple[Captured, list[Array]]] = []

    def note(run: Run, captured: Captured, leaves: Sequence[Any], containers: Sequence[Any]) -> Any:
        runs.append((captured, [np.array(in_memory(x.own.payload)) for x in captured.inputs.holders(leaves)]))
        return run(captured, leaves, containers)
    with jitted.with_around(note):
        jitted(*args, **keywords)
    if not runs:
        raise CaptureError(f"{jitted.__name__}: this call of it ran nothing that is compiled",
                           hint="pieces that compute little are left to Python: tn.explain tells which there are")
    found = [_of_graph(captured, arrays) for captured, arrays in runs]
    return next((x for x in found if x.stage), replace(found[-1], kernels=sum(x.kernels for x in found)))


def _by_pass(captured: Captured, arrays: Sequence[Array]) -> tuple[Bisection | None, tuple[str, ...], Graph]:
    """The first pass that changes a value, if one does; the passes that were run, and what they made."""
    graph, names = captured.graph, list(OPTIMIZE)
    if captured.constants:
        graph = replace(graph, notes={**graph.notes, CONSTANTS: captured.constants})
        fuse = names.index("lower_bf16_convolutions")
        names[fuse:fuse] = ON_CONSTANTS
    before, done = _run(graph, arrays), list[str]()
    for name, run in passes_for(names, CPU):
        after = run_passes(graph, [(name, run)], check=True, validate=False)
        done.append(name)
        if after is not graph:
            now = _run(after, arrays)
            said = _first_difference(before, now, name in MOVING)
            if said is not None:
                sample = SampleInputs("given", bind_sizes(graph, [x.shape for x in arrays]), tuple(arrays))
                folder = write_reproducer(name, graph, after, sample)
                return Bisection(graph.name, "pass", name, said, None, folder, tuple(done)), tuple(done), after
            graph, before = after, now
    return None, tuple(done), graph


def _run(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    with np.errstate(all="ignore"):
        return Context().run(lambda: interpret(graph, [x.copy() for x in arrays]))


def _first_difference(before: Sequence[Array], after: Sequence[Array], exact: bool = False) -> str | None:
    for k, (one, other) in enumerate(zip(before, after, strict=True)):
        said = difference(np.asarray(one), np.asarray(other), exact)
        if said is not None:
            return f"result {k}, {said}"
    return None


# ---------------------------------------------------------------- kernels

def _by_kernel(name: str, graph: Graph, arrays: Sequence[Array], passes: tuple[str, ...]) -> Bisection:
    program = native_program(replace(graph, notes={k: v for k, v in graph.notes.items() if k != CONSTANTS}))
    if not isinstance(program, Program):
        return Bisection(name, passes=passes)
    judge = _Judge()
    try:
        InstrumentedProgram(program, (judge,)).run(arrays)
    except Halted as halted:
        step = judge.step
        assert step is not None
        whole = body_of(step) if step.given else as_kernel(step.unit.body)
        folder = _write_kernel(whole, judge.inputs, judge.sizes)
        return Bisection(name, "kernel", step.unit.name, str(halted.error.args[0]), step.node.loc, folder, passes,
                         judge.count)
    return Bisection(name, passes=passes, kernels=judge.count)


@dataclass(eq=False)
class _Judge:
    """Compares every kernel with the interpreter on what it reads."""

    keeps: bool = True
    count: int = 0
    step: KernelStep | None = None
    inputs: list[Array] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)

    def wants(self, step: KernelStep | HostStep) -> tuple[bool, bool]:
        own = isinstance(step, KernelStep) and (bool(step.given) or len(step.unit.body.params) == len(step.inputs))
        return own, own

    def see(self, frame: Frame, look: LookStep) -> None:
        """Before a kernel keep what it reads, after it compare."""
        step = look.step
        assert isinstance(step, KernelStep)
        if look.before:
            self.inputs = [x.copy() for x in inputs_of(frame, step)]
            return
        self.count += 1
        with running(frame.layout.sizes), np.errstate(all="ignore"):
            expected = interpret(body_of(step), self.inputs, frame.layout.sizes)
        said = _first_difference(expected, outputs_of(frame, step))
        if said is not None:
            self.step, self.sizes = step, dict(frame.layout.sizes)
            raise Halted(TenonError(said.replace(" before", " by the interpreter").replace(" after", " by the code")))


def _write_kernel(kernel: Graph, inputs: Sequence[Array], sizes: dict[str, int]) -> Path:
    """A folder with the text of a kernel, what it read, and a program that runs both."""
    folder = Path(tempfile.mkdtemp(prefix="tenon-kernel-"))
    (folder / "kernel.txt").write_text(print_graph(kernel, locations=False), encoding="utf-8")
    arrays: dict[str, Any] = {f"input{k}": np.ascontiguousarray(x).reshape(-1).view(np.uint8)
                              for k, x in enumerate(inputs)}
    arrays |= {f"shape{k}": np.array(x.shape, np.int64) for k, x in enumerate(inputs)}
    np.savez(folder / "inputs.npz", **arrays)
    (folder / "reproduce.py").write_text(KERNEL_SCRIPT, encoding="utf-8")
    return folder


def as_kernel(body: Graph) -> Graph:
    """A graph of one node, the kernel with this body."""
    params = tuple(Value(p.type, name=f"p{k}") for k, p in enumerate(body.params))
    node = Node(fused, params, {"body": body})
    node.outputs = tuple(Value(r.type, node, k) for k, r in enumerate(body.results))
    return Graph("kernel", params, (node,), node.outputs)


def repeat_kernel(folder: Path) -> str | None:
    """How the code of a kernel in a reproducer differs from its text, on its inputs."""
    graph = parse_graph((folder / "kernel.txt").read_text(encoding="utf-8"))
    with np.load(folder / "inputs.npz") as saved:
        arrays = [saved[f"input{k}"].view(p.dtype.numpy).reshape(saved[f"shape{k}"])
                  for k, p in enumerate(graph.params)]
    try:
        found = native_program(graph).run([x.copy() for x in arrays])
    except CompilerDefect as defect:
        return str(defect)
    return _first_difference(_run(graph, arrays), found)
