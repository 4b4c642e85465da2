"""An assembly -> a program: what runs a compiled graph on arrays, from any number of Python threads at once.

    program = Program(assembly)
    loss, weights = program.run([x, weights], donated={1})

For every combination of sizes a layout is made once and kept.  A run takes an idle frame (the driver's context and
tables) and an idle arena, writes the addresses of its arrays into it, and calls the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.backends.cpu.kernel_compiler import libraries
from tenon.dims.symbolic_dim import evaluate
from tenon.errors import ADDRESSABLE, ArgumentError, OverBudget, ShapeError, TenonError, out_of_memory
from tenon.gc_control import LARGE_PROGRAM_STEPS, collected_at_the_end, give_back
from tenon.graph.interpret import bind_sizes, concrete_type
from tenon.graph.ir import AS_READ, Graph, Node
from tenon.graph.verify import verify_sizes
from tenon.llvm import machine_code
from tenon.llvm.compile_pool import Job
from tenon.locks import Lock
from tenon.observe import emit, span, timed
from tenon.program import step_executor as native
from tenon.program.backend_interface import Array, Executable, Then
from tenon.program.execution_plan import Assembly
from tenon.program.kernel import CompiledKernel
from tenon.program.steps import HostStep, KernelStep, Storage, leaves
from tenon.runtime.arena_planning import aligned_bytes
from tenon.runtime.forks import FORKING
from tenon.runtime.guard_pages import guarded_arena, guarding
from tenon.runtime.program_layout import Layout, differ_in_words_alone, make_layout, take_donated
from tenon.runtime.run_frame import Frame
from tenon.runtime.step_table import unit_for
from tenon.runtime.thread_pool import pool, pool_version
from tenon.types import TensorType, as_dtype, has_arrays

MAX_LAYOUTS = 256      # of sizes: of all convolutions of a network, which are one program
MAX_QUICK_MEMORY = 1 << 25     # bytes that a quick call keeps for itself
CONTIGUOUS_AND_ALIGNED = 0x101      # of ndarray.flags


class Program:
    """A compiled graph."""

    def __init__(self, parts: Assembly):
        self.parts = parts
        self.packing = None if parts.packing is None else Program(parts.packing)
        self.seconds: dict[str, float] = {}     # by stages of what a first run does
        self._libraries: dict[CompiledKernel, machine_code.Library] = {}      # which keep the code alive
        self._native = native.driver()
        self._layouts: dict[Any, Layout] = {}
        self._idle: dict[Layout, list[Frame]] = {}
        self._arenas: list[Array] = []
        self.new_arena: Callable[[int], Array | None] = aligned_bytes       # of the device that it runs on
        self._changing = Lock()
        self._by_shapes: dict[Any, Layout] = {}     # (shapes, donated) -> layout
        self.instrumented: Executable | None = None    # what runs in its place while somebody looks at what it computes
        emit("program", name=self.graph.name, program=self)

    # ------------------------------------------------------------ what it is

    @property
    def graph(self) -> Graph:
        """What is run, after all passes."""
        return self.parts.graph

    @property
    def kernels(self) -> list[CompiledKernel]:
        """The distinct kernels; `.name`, `.loops` and `.ir` are to be read."""
        return self.parts.units

    @property
    def plan(self) -> Layout:
        """The layout last made; of the fixed sizes where none was run yet."""
        with self._changing:
            if self._layouts:
                return next(reversed(self._layouts.values()))
        return self._layout_for([], ())

    @property
    def peak_bytes(self) -> int:
        """Memory beside the arguments and results; where loops keep what the data ask for, what runs have taken."""
        plan = self.plan
        return plan.memory.size + plan.cell_bytes

    @property
    def llvm(self) -> str:
        """The LLVM IR of every kernel."""
        return "\n".join(unit.ir for unit in self.kernels)

    @property
    def assembly(self) -> str:
        """The machine code of every kernel."""
        return "\n".join(machine_code.assembly(unit.ir, unit.target) for unit in self.kernels)

    @property
    def packs(self) -> tuple[int, ...]:
        """The arguments from which `panels` makes the last ones."""
        return self.parts.packs

    # ------------------------------------------------------------ running it

    @property
    def unread(self) -> frozenset[int]:
        """Those of them that no run reads: any memory may be given in their place."""
        return self.parts.unread

    def panels(self, arrays: Sequence[Array]) -> list[Array]:
        """The last arguments, made from the others: the factors of products, packed."""
        return [] if self.packing is None else self.packing.run([arrays[k] for k in self.packs])

    def run(self, arrays: Sequence[Array], donated: Collection[int] = (), then: Then | None = None) -> list[Array]:
        """The results, in memory of their own or in that of `donated` arguments, which must not be used afterwards.

        What `then` says is stored when they are there, before Python does anything else.
        """
        if self.instrumented is not None:
            return self.instrumented.run(arrays, donated, then)
        if donated and then is not None and not pool().in_c:      # where a region is run by Python
            donated = ()
        key = tuple([array.shape for array in arrays]), frozenset(donated) if donated else None
        layout = known = self._by_shapes.get(key)
        if layout is None or layout.pool_threads != pool().threads:
            arrays = self._accept(arrays)
            layout = self._by_shapes[key] = self._layout_for(key[0], donated)
        elif not _fit(arrays, layout):
            arrays = self._accept(arrays)
        try:
            frame = self._idle[layout].pop()
        except (KeyError, IndexError):
            frame = Frame(layout, self._native)
        arena = None
        try:
            arena = self._take_arena(layout)
            if layout is known:
                return frame.run(arrays, arena, then)
            # It takes pages from the system.
            with span("first_run", graph=self.graph.name), timed(self.seconds, "first_run"):
                return frame.run(arrays, arena, then)
        except MemoryError as error:
            raise error if isinstance(error, TenonError) else self._too_large(layout.sizes) from None
        finally:
            self._idle.setdefault(layout, []).append(frame)
            if arena is not None and not layout.memory.walls:
                self._arenas.append(arena)

    def prepare(self, shapes: Sequence[tuple[int, ...]], donated: Collection[int] = ()) -> None:
        """Make all code that a run with arguments of these shapes needs."""
        self._layout_for(shapes, donated)

    def layout_for(self, shapes: Sequence[tuple[int, ...]], donated: Collection[int] = ()) -> Layout:
        """The plan of a run with arguments of these shapes."""
        return self._layout_for(shapes, donated)

    def new_frame(self, layout: Layout) -> Frame:
        """A frame with an arena of its own."""
        frame = Frame(layout, self._native)
        frame.use(self._take_arena(layout))
        return frame

    def quick_frame(self, arrays: Sequence[Array], donated: Collection[int] = (),
                    most: Mapping[str, int] | None = None) -> Frame | None:
        """A frame with an arena of its own for calls with arrays like these; None where a call is not quick: it asks
        Python for what is not to be repeated, or needs more memory than to keep for it alone.

        With `most` it is for calls with other sizes too, up to these, whose words the caller writes; None where more
        depends on sizes than words."""
        if guarding():              # arguments are copied
            return None
        unchanged, threads = pool_version(), pool()     # in this order: another thread may set the number between
        shapes = [a.shape for a in self._accept(arrays)]
        if most is None:
            layout = self._layout_for(shapes, donated)
        elif differ_in_words_alone(self.parts.steps) and AS_READ not in self.graph.notes:
            try:
                with self._changing:
                    layout = self._new_layout(bind_sizes(self.graph, shapes), donated, threads.threads, most)
            except OverBudget:      # there is not to be so much memory
                return None
        else:
            return None
        if layout.memory.size + layout.scratch * layout.threads > MAX_QUICK_MEMORY:
            return None
        if layout.host and most is not None:
            return None
        if not all(type(step) is HostStep and step.is_repeatable for step in layout.host):
            return None
        if layout.host and donated:     # what they hold is wanted again where a step fails
            return self.quick_frame(arrays)
        if layout.pool_threads != threads.threads or (layout.threads > 1 and threads.parallel is None):
            return None
        frame = self.new_frame(layout)
        if frame.takes_long:
            frame.conditions = (unchanged, *([(FORKING.ctypes.data, 0)] if donated else []))
        if layout.threads > 1:
            frame.pool, frame.keeps = (threads.state, threads.parallel or 0), threads
            frame.context[native.POOL] = threads.state
            threads.start()
        return frame

    def _compile(self, units: Iterable[CompiledKernel]) -> bool:
        """Make the code of kernels, or find it, where that was not done before; whether LLVM had to make any."""
        missing = [unit for unit in dict.fromkeys(units) if unit not in self._libraries]
        made = any(isinstance(unit.code, Job) for unit in missing)
        if missing:
            with span("machine_code", graph=self.graph.name, kernels=len(missing)), collected_at_the_end(), \
                    timed(self.seconds, "machine_code"):
                self._libraries.update(zip(missing, libraries(missing), strict=True))
        return made

    def _compile_for(self, taken: Mapping[Storage, Storage]) -> None:
        """The kernels that a layout calls in which these results have the memory of these arguments."""
        made = self._compile(unit_for(step, taken) for step in leaves(self.parts.steps) if isinstance(step, KernelStep))
        for unit in self.parts.units:
            unit.forget()
        if made and not self._layouts and len(self.parts.steps) >= LARGE_PROGRAM_STEPS:
            give_back()

    def _address_of(self, unit: CompiledKernel) -> list[int]:
        """The stages of a kernel."""
        return [self._libraries[unit].address(name) for name in unit.functions]

    def _take_arena(self, layout: Layout) -> Array | None:
        """Memory for one run: an idle arena that is large enough, or a new one in the place of a smaller."""
        needed = layout.memory.size + layout.scratch * layout.threads
        if not needed:
            return None
        if layout.memory.walls:
            return guarded_arena(layout.memory, needed)
        try:
            arena = self._arenas.pop()
        except IndexError:
            return self.new_arena(needed)
        return arena if arena.size >= needed else self.new_arena(needed)

    def _accept(self, arrays: Sequence[Array]) -> list[Array]:
        """The arguments in the types and the memory order that kernels read; raises ArgumentError for other types."""
        if len(arrays) != len(self.graph.params):
            raise ArgumentError(f"{self.graph.name} takes {len(self.graph.params)} arrays, not {len(arrays)}")
        accepted = []
        for array, param in zip(arrays, self.graph.params, strict=True):
            array = np.asarray(array)
            native_type = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
            if native_type != param.dtype.numpy or array.ndim != param.ndim:
                given = TensorType(as_dtype(native_type), array.shape)
                raise ArgumentError(f"{self.graph.name}: {param.name or 'an argument'} is {param.type}, not {given}")
            accepted.append(np.require(array, native_type, ["C", "A"]))
        return accepted

    def _too_large(self, sizes: Mapping[str, int]) -> TenonError:
        """The error that names the largest output of a node."""
        node = max(self.graph.nodes, key=lambda node: _bytes(node, sizes))
        largest = max((concrete_type(x.type, sizes) for x in node.outputs), key=lambda type: int(type.size))
        made = node.attrs["body"].results[0].node if "body" in node.attrs else node      # of a fused node: its last
        return out_of_memory((made or node).op.name, largest, _bytes(node, sizes), node.loc)

    def _check_results(self, sizes: Mapping[str, int]) -> None:
        """Raise ShapeError for a result without elements whose other sizes are more than NumPy counts."""
        for result in self.graph.results:
            if not has_arrays(type := concrete_type(result.type, sizes)):
                name, where = ("", None) if result.node is None else (f"{result.node.op.name}: ", result.node.loc)
                raise ShapeError(f"{name}{type} has larger sizes than an array may have", where)

    def _layout_for(self, shapes: Sequence[tuple[int, ...]], donated: Collection[int]) -> Layout:
        sizes = bind_sizes(self.graph, shapes) if shapes or self.graph.symbols() else {}
        threads = pool().threads
        key = tuple(sizes.values()), frozenset(donated), threads
        layout = self._layouts.get(key)
        if layout is None:
            with self._changing:
                layout = self._layouts[key] = self._new_layout(sizes, donated, threads)
                while len(self._layouts) > MAX_LAYOUTS:
                    self._by_shapes.clear()
                    self._idle.pop(self._layouts.pop(next(iter(self._layouts))), None)
        return layout

    def _new_layout(self, sizes: Mapping[str, int], donated: Collection[int], threads: int,
                    most: Mapping[str, int] | None = None) -> Layout:
        """A plan for these sizes, with the code that it asks for; the caller holds `_changing`."""
        with span("layout", graph=self.graph.name, **sizes):
            if any(_bytes(node, sizes) > ADDRESSABLE for node in self.graph.nodes):
                raise self._too_large(sizes)
            self._check_results(sizes)
            if (read := self.graph.notes.get(AS_READ)) is not None:
                verify_sizes(read, sizes)
            taken = take_donated(self.parts, sorted(donated))
            self._compile_for(taken)
            with timed(self.seconds, "layout"):
                layout = make_layout(self.parts, self._address_of, sizes, taken, threads, most)
        emit("memory", program=self, layout=layout)
        return layout


def _bytes(node: Node, sizes: Mapping[str, int]) -> int:
    """The size of the largest output."""
    return max((evaluate(x.type.size, sizes) * x.dtype.itemsize for x in node.outputs), default=0)


def _fit(arrays: Sequence[Array], layout: Layout) -> bool:
    """Whether the arguments, of the right shapes, are exactly what kernels read."""
    for array, (dtype, _) in zip(arrays, layout.params):
        if (type(array) is not np.ndarray or array.dtype != dtype
                or array.flags.num & CONTIGUOUS_AND_ALIGNED != CONTIGUOUS_AND_ALIGNED):
            return False
    return True
