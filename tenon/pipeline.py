"""Graph -> optimised graph -> program: the passes in the order in which they run, and what runs them.

    program = compile(graph)
    loss, grad = program.run([x, w])

`optimize(graph, trace=[])` fills the list with one `Step` a pass: time, nodes, text, and whether anything changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

from tenon.backends.reference import REFERENCE
from tenon.config import ConfigError, config
from tenon.devices import HOST, PYTHON, Device
from tenon.errors import ArgumentError, Location
from tenon.gc_control import collect_young, collected_at_the_end
from tenon.graph.ir import AUTOTUNE, CONSTANTS, MESH, PIPELINE, PLACE, PROCESS, Graph, Node
from tenon.graph.kernels import KERNELS, has_kernel
from tenon.graph.size_stages import is_sized_by_data
from tenon.graph.text import print_graph
from tenon.graph.validate import PassWatch
from tenon.graph.value_devices import speaks_of_devices
from tenon.graph.verify import verify
from tenon.locks import unforked
from tenon.loops.whole_operators import is_attention
from tenon.observe import Event, emit, span, subscribe
from tenon.ops.collectives import all_reduce_op
from tenon.passes.fusion.kernel_bodies import forget_lowered
from tenon.program.backend_interface import Backend, Executable
from tenon.records import dataclass, replace
from tenon.runtime.staged_program import StagedProgram
from tenon.target import Target

Pass = Callable[..., Graph]


def lazy_pass(name: str) -> Pass:
    """The pass of this name, loaded when it is first run: a graph from the disk needs none."""
    def run(graph: Graph, **options: Any) -> Graph:
        with unforked:
            run_pass: Pass = getattr(import_module(f"tenon.passes.{name}"), name)
        return run_pass(graph, **options)
    return run


PASSES: dict[str, Pass] = {name: lazy_pass(name) for name in (
    "merge_collectives",
    "expand", "decompose_strided_gradients", "unroll_small_linalg", "simplify", "fold", "specialize",
    "transpose_products", "hoist", "merge_duplicates", "find_attention", "place_heads_last", "merge_control_flow",
    "unroll", "drop_dead", "batch_scan_products", "absorb_scales", "use_channels_last", "drop_barriers",
    "lower_bf16_convolutions", "fuse", "schedule_nodes", "recompute", "schedule_collectives")}

OWN_PASSES = dict(PASSES)        # beside which users may add their own (tn.graph_pass)

# In order.  The second simplify uses what fold made literal; barriers stand until nothing merges any more.
# Loops that nobody reads must not be merged with others; merging leaves some results unread.
OPTIMIZE = ["expand", "decompose_strided_gradients", "simplify", "fold", "specialize", "transpose_products", "simplify",
            "merge_duplicates", "drop_dead", "find_attention", "place_heads_last", "merge_control_flow", "hoist",
            "unroll", "drop_dead", "batch_scan_products", "drop_barriers", "unroll_small_linalg",
            "lower_bf16_convolutions", "fuse", "schedule_nodes", "recompute"]
BETWEEN_DEVICES = ("merge_collectives",)
IN_LAST_ORDER = ("schedule_collectives",)
# Before fuse, where some parameters are constants.
ON_CONSTANTS = ("absorb_scales", "use_channels_last", "lower_bf16_convolutions", "drop_dead")
ON_KERNELS = ("fuse", "schedule_nodes", "recompute")
TARGETED = ("fuse", "recompute")        # that ask what kernels would cost


def this_machine() -> Target:
    """The processor at hand, which is asked here and nowhere else."""
    with unforked:
        from tenon.llvm.host_target import host  # local: LLVM is slow to load, and not always needed
    return host()


def native_program(graph: Graph, machine: Callable[[], Target] = this_machine, runs: bool = True) -> Executable:
    """Machine code for a processor; where nothing `runs`, its text alone, to be read."""
    with unforked:
        from tenon.backends.cpu.compile_graph import assemble_graph  # local, as above
        from tenon.runtime.program import Program
        from tenon.runtime.program_layout import called_first
    if runs and graph.notes.get(AUTOTUNE):
        with unforked:
            from tenon.runtime.autotune import tuned
        return Program(assemble_graph(graph, machine(), called_first, tuned))
    return Program(assemble_graph(graph, machine(), called_first, runs=runs))


def claimed_by_cpu(node: Node) -> bool:
    """What reaches machine code whole: what users have kernels for, and what has a schedule of its own."""
    return has_kernel(node) or is_attention(node)


def prepare_cpu() -> None:
    """Begin to make what runs every native program."""
    with unforked:
        from tenon.backends.cpu.kernel_compiler import prepare  # local, as above
    prepare()


def begin_on_cpu(graph: Graph) -> None:
    """Begin to make the kernels of a graph."""
    with unforked:
        from tenon.backends.cpu.compile_graph import begin  # local, as above
    begin(graph, this_machine())


CPU = Backend("cpu", native_program, claims=claimed_by_cpu, fuses=True, prepare=prepare_cpu, begin=begin_on_cpu,
              target=this_machine)


def cross_backend(target: Target) -> Backend:
    """What makes the text of programs for another machine, which cannot be run here."""
    compiled = partial(native_program, machine=lambda: target, runs=False)
    return Backend("cpu", compiled, claims=claimed_by_cpu, fuses=True, target=lambda: target)


BACKENDS: dict[str, Backend] = {backend.name: backend for backend in (CPU, REFERENCE)}


@dataclass(frozen=True)
class Rewrite:
    """What one rule did: where it is written, and where the node comes from that it rewrote."""

    rule: Location
    node: Location | None


@dataclass(frozen=True)
class Step:
    """What one pass did."""

    name: str
    seconds: float
    nodes_before: int
    nodes_after: int
    text: str
    changed: bool
    graph: Graph        # after it
    rewrites: tuple[Rewrite, ...] = ()      # by rules of a table

    def __str__(self) -> str:
        if not self.changed:
            return f"# {self.name} (unchanged)"
        return (f"# {self.name}: {self.nodes_before} -> {self.nodes_after} nodes, {self.seconds * 1e3:.2f} ms\n"
                f"{self.text}")


def optimize(graph: Graph, trace: list[Step] | None = None, backend: Backend | str | None = None) -> Graph:
    """The same function, in the form that the backend runs best.

    Raises ArgumentError where the data decide sizes, since stages are optimised one by one.
    """
    if is_sized_by_data(graph):
        raise ArgumentError(f"optimize: the data decide sizes in {graph.name}, which is run in stages",
                            hint="tenon.graph.size_stages.stages_of gives their graphs")
    return _run(graph, passes_of(graph), choose(backend), trace)


def passes_of(graph: Graph) -> list[str]:
    """The passes, in order, that a graph goes through; what it says to other devices is looked at first."""
    sums = any(node.op is all_reduce_op for node in graph.nodes)
    return [*BETWEEN_DEVICES, *OPTIMIZE, *IN_LAST_ORDER] if sums else OPTIMIZE


def compile(graph: Graph, backend: Backend | str | None = None, trace: list[Step] | None = None) -> Executable:
    """The program for `graph` on this backend (TENON_BACKEND where none is named)."""
    chosen = choose(backend)
    emit("graph", name=graph.name, captured=graph)
    if PIPELINE in graph.notes:
        with unforked:
            from tenon.pipelining.pipelined import Pipelined  # local: few programs are pipelines
        return Pipelined(graph, graph.notes[PIPELINE], partial(compile, backend=chosen, trace=trace),
                         graph.notes.get(MESH))
    if (mesh := graph.notes.get(MESH)) is not None:
        with unforked:
            from tenon.runtime.spmd_program import SpmdProgram  # local: most graphs run on one device
        return SpmdProgram(graph, mesh, partial(compile, backend=chosen, trace=trace))
    if speaks_of_devices(graph):
        return _on_devices(graph, chosen, trace)
    if len(graph.notes.get(PLACE) or ()) > 1:
        return _placed(graph, chosen, trace)
    if is_sized_by_data(graph):
        return StagedProgram(graph, partial(compile, backend=chosen, trace=trace))
    with _compiling(graph, chosen):
        names = passes_of(graph)
        optimized = _run(graph, names, chosen, trace) if trace is not None else _remembered(graph, names, chosen)
        return _made(optimized, chosen)


def _on_devices(graph: Graph, backend: Backend, trace: list[Step] | None) -> Executable:
    """What runs a graph whose values are on several devices: a program each, for the backend of its kind."""
    with unforked:
        from tenon.placement.follow_devices import placed_program  # local: rarely needed
        from tenon.runtime.launch_program import LaunchedProgram
        from tenon.runtime.open_devices import opened

    def program(part: Graph, device: Device) -> Executable:
        if device is PYTHON:
            return compile(part, REFERENCE, trace)
        if device.type != "cpu":
            return LaunchedProgram(compile(part, device.type, trace), opened(device))
        made = compile(part, backend, trace)
        if device is not HOST and hasattr(made, "new_arena"):
            made.new_arena = opened(device).arena
        return made
    return placed_program(graph, program)


def _placed(graph: Graph, backend: Backend, trace: list[Step] | None) -> Executable:
    """What runs a graph on the devices that it may be on, as its costs say; on one where that is soonest."""
    with unforked:
        from tenon.placement.on_processes import placed_on_processes  # local: rarely needed
        from tenon.placement.placed_program import placed_by_cost
    names = graph.notes[PLACE]
    made = placed_on_processes if names[0].startswith(PROCESS) else placed_by_cost
    return made(graph, names, partial(compile, backend=backend, trace=trace))


@contextmanager
def _compiling(graph: Graph, backend: Backend) -> Iterator[None]:
    with span("compile", graph=graph.name, backend=backend.name), collected_at_the_end():
        backend.prepare()
        try:
            yield
        finally:
            forget_lowered()


@dataclass(frozen=True, eq=False)
class PartialEvaluation:
    """Programs for a graph some of whose arguments rarely change.

    `early` takes the arguments at `made_from`, and `late` those at `reads`, followed by what `early` returns.
    """

    early: Executable | None
    late: Executable
    made_from: tuple[int, ...]
    reads: tuple[int, ...]


def compile_with_constants(graph: Graph, constants: Sequence[int], backend: Backend | str | None = None,
                   absorb: bool = True, trace: list[Step] | None = None) -> PartialEvaluation:
    """The programs for `graph`, of which the parameters at `constants` rarely change; scales are absorbed where asked,
    which is legal where all that `early` returns is finite.

    `trace` gets the steps of the late one, and the cut among them.
    """
    with unforked:
        from tenon.passes.partition_constants import cut_constants  # local: with it come passes, and constants are rare
    chosen = choose(backend)
    noted = replace(graph, notes={**graph.notes, CONSTANTS: tuple(constants)})
    emit("graph", name=graph.name, captured=graph)
    with _compiling(graph, chosen):
        kernels = OPTIMIZE.index("lower_bf16_convolutions")         # scales are absorbed before
        run = _remembered if trace is None else partial(_run, trace=trace)
        started, whole = time.perf_counter(), run(noted, [*OPTIMIZE[:kernels], *ON_CONSTANTS[not absorb:]], chosen)
        cut = cut_constants(whole)
        if trace is not None:
            trace.append(Step("cut_constants", time.perf_counter() - started, len(whole.nodes), len(cut.late.nodes),
                              print_graph(cut.late), True, cut.late))
        rest = OPTIMIZE[OPTIMIZE.index("drop_barriers"):]       # channels_last keeps constants apart by some
        early = _made(_remembered(cut.early, rest, chosen), chosen) if cut.early.results else None
        late = _made(run(cut.late, rest, chosen), chosen)
        return PartialEvaluation(early, late, cut.made_from, cut.reads)


def _made(graph: Graph, backend: Backend) -> Executable:
    with span("backend", graph=graph.name, nodes=len(graph.nodes)):
        return backend.compile(graph)


def _remembered(graph: Graph, names: Sequence[str], backend: Backend) -> Graph:
    """The graph after these passes, from the disk where only Tenon's own code decides what it is."""
    own = not KERNELS and all(PASSES[name] is OWN_PASSES.get(name) for name in names)
    if backend is not CPU or not own or always_check or "passes" in config().check:
        return _run(graph, names, backend)
    with unforked:
        from tenon.program.graph_cache import remembered  # local: LLVM is slow to load, and not always needed
    begins = {"fuse": partial(lazy_pass("fuse"), begin=backend.begin)}     # so what follows runs beside the backend
    return remembered(graph, names, lambda graph: _run(graph, names, backend, passes=PASSES | begins))


def _run(graph: Graph, names: Sequence[str], backend: Backend, trace: list[Step] | None = None,
         passes: Mapping[str, Pass] = PASSES) -> Graph:
    return run_passes(graph, passes_for(names, backend, passes), trace)


def passes_for(names: Sequence[str], backend: Backend, passes: Mapping[str, Pass] = PASSES) -> list[tuple[str, Pass]]:
    """Those of these passes that are run for a backend, as it wants them."""
    chosen = [(name, passes[name]) for name in names if name not in ON_KERNELS or backend.fuses]
    return [(name, _claiming(name, run, backend)) for name, run in chosen]


def choose(backend: Backend | str | None) -> Backend:
    """The backend of this name, or the configured one."""
    if isinstance(backend, Backend):
        return backend
    name = backend or config().backend
    if name in BACKENDS:
        return BACKENDS[name]
    hint = f"one of {', '.join(BACKENDS)}"
    if backend:
        raise ArgumentError(f"no backend named {name!r}", hint=hint)
    raise ConfigError(f"TENON_BACKEND: no backend named {name!r}", hint=hint)


def run_passes(graph: Graph, passes: Sequence[tuple[str, Pass]], trace: list[Step] | None = None,
               check: bool | None = None, validate: bool | None = None) -> Graph:
    """Each pass after the other, timed, reported to observers and, when `check` is set, verified; when `validate` is,
    the interpreter compares what the graph computes before and after it."""
    check = always_check if check is None else check
    watch = PassWatch(graph) if ("passes" in config().check if validate is None else validate) else None
    text = print_graph(verify(graph) if check else graph) if trace is not None else ""
    for name, run in passes:
        started, before, given = time.perf_counter(), len(graph.nodes), graph
        try:
            with span("pass", name=name, graph=graph.name, nodes=before), _heard(trace is not None) as rewrites:
                graph = run(graph)
            collect_young()
            if check:
                verify(graph)
            if watch is not None:
                watch.after(name, graph)
        except Exception as error:
            error.add_note(f"in pass {name} on graph {graph.name}")
            raise
        if trace is not None:
            previous, text = text, text if graph is given else print_graph(graph)
            trace.append(Step(name, time.perf_counter() - started, before, len(graph.nodes), text, text != previous,
                              graph, tuple(rewrites)))
    return graph


@contextmanager
def _heard(asked: bool) -> Iterator[list[Rewrite]]:
    """What rules do in the block, where that is asked for."""
    found: list[Rewrite] = []

    def hear(event: Event) -> None:
        if event.name == "rewrite":
            rule: Any = event.fields["rule"]
            node: Any = event.fields["node"]
            found.append(Rewrite(rule.where, node.loc))
    stop = subscribe(hear) if asked else None
    try:
        yield found
    finally:
        if stop is not None:
            stop()


always_check = False     # tests set it: every graph is verified after every pass


def _claiming(name: str, run: Pass, backend: Backend) -> Pass:
    """`expand` leaves to the backend what it claims, and `find_attention` what it does not."""
    if name == "lower_bf16_convolutions":
        return partial(run, pairs=backend.target().pairs)
    if name in TARGETED:
        return partial(run, target=backend.target())
    return partial(run, claimed=backend.claims) if name in ("expand", "find_attention") else run
