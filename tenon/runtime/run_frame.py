"""A layout and arrays -> results: one run at a time, with the host steps in it and the errors that it ends in."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import chain
from operator import call, is_not, ne
from threading import get_ident
from typing import Any
from weakref import ref

import numpy as np

from tenon.atomic import Store, at_once, ignored, later
from tenon.errors import TenonError, failed_check, step_error
from tenon.graph.interpret import concrete_type, running
from tenon.graph.ir import Input, Literal, Value
from tenon.llvm.safepoints import interrupts
from tenon.ops.gradient_stacks import not_pushed
from tenon.program import step_executor as native
from tenon.program.backend_interface import Array, Then
from tenon.program.kernel import count
from tenon.program.steps import AllocateStep, FollowStep, HostStep, LookStep, Storage, homes
from tenon.runtime.arena_planning import aligned_bytes
from tenon.runtime.buffer_pool import take
from tenon.runtime.forks import RunPhase
from tenon.runtime.guard_pages import guarded_copy, guarding
from tenon.runtime.host_call import HostCall
from tenon.runtime.program_layout import QUICK_WORK, Layout
from tenon.runtime.stack_region import Cells
from tenon.runtime.step_table import STATUS_WORDS
from tenon.runtime.thread_pool import Pool, pool
from tenon.types import TensorType

DATA_OFFSET = object.__basicsize__  # where an ndarray keeps the address of its elements: right behind the object's head


NativeCall = Callable[[tuple[Any, ...], tuple[Any, ...]], bool]     # of leaves and new arrays


class Frame:
    """What one run at a time writes to: the driver's context, its table of addresses, the words that report errors.

    A quick call (`tenon.capture.fast_call_runs`) has a frame of its own, with the `pool` (its state, the function that
    starts a region) that it runs on, and the words in memory that must be as they were.  They are looked at before a
    call; the number of threads may be set meanwhile, so the frame keeps its pool, which is closed then and runs the
    caller alone.
    """

    pool: tuple[int, int] = (0, 0)
    keeps: Pool | None = None
    conditions: tuple[tuple[int, int], ...] = ()

    def __init__(self, layout: Layout, driver: native.StepExecutor):
        self.layout, self.driver = layout, driver
        self.pointers = layout.pointers.copy()
        self.objects = (ctypes.c_uint64 * max(1, len(layout.params) + len(layout.results)))()
        self.objects_at = ctypes.addressof(self.objects)
        self.statuses = np.zeros(layout.status_words, np.int64)
        self.noted, self.nothing_noted = self.statuses.data, np.zeros_like(self.statuses).data
        self.context = np.zeros(native.CONTEXT_WORDS, np.int64)
        self.phase = RunPhase(self.context[native.PHASE:native.PHASE + 2])
        self.claims = aligned_bytes(native.CLAIM_BYTES * layout.threads)
        self.address = self.context.ctypes.data
        self.arena: Array | None = None
        self.error: BaseException | None = None
        self.cells = Cells(layout.most_cells)
        self.host_calls: dict[HostStep, HostCall] = {}
        for word, value in (
                (native.STEPS, layout.steps.ctypes.data), (native.POINTERS, self.pointers.ctypes.data),
                (native.SIZES, layout.size_words.ctypes.data), (native.SCRATCH_STRIDE, layout.scratch),
                (native.CALLBACK, self.callback_address() if layout.host else 0),
                (native.STATUSES, self.statuses.ctypes.data), (native.STATUS_COUNT, layout.status_words),
                (native.OBJECTS, self.objects_at), (native.BINDINGS, layout.bindings.ctypes.data),
                (native.BINDING_COUNT, len(layout.bindings) // 3), (native.DATA_OFFSET, DATA_OFFSET),
                (native.PLACES, layout.places.ctypes.data), (native.PLACE_COUNT, len(layout.places) // 2),
                (native.MOVES, layout.moves.ctypes.data), (native.CLAIMS, self.claims.ctypes.data),
                (native.CLAIM_COUNT, layout.threads if layout.threads > 1 else 0)):
            self.context[word] = value
        self.takes_long = layout.threads > 1 or layout.endless or layout.work >= QUICK_WORK
        self.context[native.ASKS] = self.takes_long
        self.call = driver.run if self.takes_long else driver.run_quickly

    def run(self, arrays: Sequence[Array], arena: Array | None, then: Then | None = None) -> list[Array]:
        """Bind, run, and raise what went wrong; what `then` says of the results is stored where they are there."""
        layout, objects = self.layout, self.objects
        if guarding():
            arrays = [guarded_copy(array) for array in arrays]
        results = [take(shape, dtype) if donor is None else arrays[donor] for shape, dtype, donor in layout.results]
        k = 0
        for array in arrays:
            objects[k] = id(array)
            k += 1
        for array in results:
            objects[k] = id(array)
            k += 1
        self.use(arena)
        try:
            stores = None if then is None else then(results, self.phase)
            if layout.host or layout.checked:
                self.run_checked(stores)
                return results
            self.drive(stores)
            return results
        finally:
            self.phase.end()

    def own_sizes(self) -> np.ndarray:
        """The sizes that kernels are given, in memory of the frame's own: who writes there runs with others."""
        words: np.ndarray = self.layout.size_words.copy()
        self.context[native.SIZES], self.sizes = words.ctypes.data, words
        return words

    def use(self, arena: Array | None) -> None:
        """Let steps keep in this arena what lives between them."""
        if arena is not self.arena and arena is not None:
            self.arena = arena
            self.context[native.ARENA] = arena.ctypes.data
            self.context[native.SCRATCH] = arena.ctypes.data + self.layout.memory.size

    def drive(self, stores: Iterator[Any] | None = None) -> None:
        """Run the steps: here, or on the threads of the pool.  Raises what a signal's handler raised meanwhile.

        Where all went well the stores are done before Python handles a signal: the steps may have written in memory
        that tensors show.
        """
        threads, loops = pool(), self.layout.loops
        if self.layout.threads == 1 or threads.threads > self.layout.threads:   # the number was set since the layout
            run: Store = self.call, self.address
        else:
            self.context[native.POOL] = threads.state
            self.driver.bind(self.address)
            run = threads.region(self.driver.drive, self.address)
        if stores is None:
            call(*run)
            if loops:
                interrupts().raise_interrupt()
            return
        at_once(stores, unless=chain(
            ignored(later(*run)), later(interrupts().raise_interrupt) if loops else (),
            map(is_not, later(getattr, self, "error"), (None,)), later(ne, self.noted, self.nothing_noted)))

    def run_checked(self, stores: Iterator[Any] | None) -> None:
        """For programs in which steps may fail, or call back."""
        layout, self.error = self.layout, None
        self.statuses[:] = 0
        self.use_cells(self.cells.begin())
        try:
            with running(layout.sizes):
                self.drive(stores)
        finally:
            layout.cell_bytes = max(layout.cell_bytes, self.cells.peak)
            self.cells.end()
        self.raise_host_error()
        if self.statuses.any():
            raise self.failed_check()

    def failed_check(self) -> TenonError:
        """The error of the first kernel that met an index out of range, or a matrix that is refused."""
        rows = self.statuses.reshape(-1, STATUS_WORDS)
        row = int(np.flatnonzero(rows[:, 0])[0])
        number, index, size = rows[row].tolist()
        step = self.layout.checked[row - 1]
        operator, where = step.unit.failed(number - 1)
        return failed_check(operator or step.node.op.name, index, size, where or step.node.loc)

    # ------------------------------------------------------------ host steps

    def raise_host_error(self) -> None:
        """What a host step raised, in the caller."""
        error, self.error = self.error, None
        if error is not None:
            raise error

    def callback_address(self) -> int:
        """Where machine code calls for a host step."""
        steps = _host_steps(ref(self))
        next(steps)
        self.callback = native.Callback(steps.send)
        return ctypes.cast(self.callback, ctypes.c_void_p).value or 0

    def host_step(self, number: int) -> bool:
        """Let NumPy do a step; False where it raises."""
        step = self.layout.host[number]
        try:
            if type(step) is HostStep:
                self.evaluate(step)
            elif isinstance(step, AllocateStep):
                size, end = count(step.bytes, self.layout.sizes), int(self.context[native.CELL_END])
                self.use_cells(self.cells.grow(size, end))
            elif isinstance(step, FollowStep):
                raise not_pushed(step.node.loc)
            elif isinstance(step, LookStep):
                step.see(self, step)
            else:
                self.evaluate(step)
        except Exception as error:
            self.fail(step_error(error, step.node.op.name, step.node.loc))
            return False
        return True

    def fail(self, error: BaseException) -> None:
        """Remember what a host step raised."""
        self.error = error

    def with_host_steps(self, call: NativeCall) -> NativeCall:
        """A native call that runs this frame, with what its host steps raise.

        An `Exception` means that its conditions do not hold: the slow path meets it once more, and says what it means.
        """
        errors: dict[int, BaseException] = {}       # by thread: once the frame is free, another may take it
        self.fail = lambda error: errors.__setitem__(get_ident(), error)  # type: ignore[method-assign]

        def hosted(leaves: tuple[Any, ...], new: tuple[Any, ...]) -> bool:
            ran = call(leaves, new)
            if not errors or (error := errors.pop(get_ident(), None)) is None:
                return ran
            if not isinstance(error, Exception):
                raise error
            return False
        return hosted

    def use_cells(self, chunk: Array | None) -> None:
        """Let stacks grow in this chunk from now on."""
        start, size = (0, 0) if chunk is None else (chunk.ctypes.data, chunk.nbytes)
        self.context[native.CELL_NEXT], self.context[native.CELL_END] = start, start + size

    def evaluate(self, step: HostStep) -> None:
        call = self.host_calls.get(step)
        if call is None:
            call = self.host_calls[step] = HostCall(self, step)
        call.run(self)

    def argument(self, x: Input, place: Storage | Literal | None) -> Array | None:
        """The array that a step is given."""
        if isinstance(place, Literal):
            return np.asarray(place.value, place.dtype.numpy)
        if place is None:
            return None
        assert isinstance(x, Value)
        return self.view(place, concrete_type(x.type, self.layout.sizes))

    def view(self, storage: Storage, type: TensorType) -> Array:
        """The memory of a storage as an array of this type."""
        place = self.layout.of[storage]
        if place.kind == "object":
            array = self.bound(place.where)
            return array if array.dtype is type.dtype.numpy and array.shape == type.shape else \
                array.view(type.dtype.numpy).reshape(type.shape)
        if place.kind == "address":
            assert storage.data is not None
            return storage.data.reshape(type.shape)
        if not type.size:
            return np.empty(type.shape, type.dtype.numpy)
        if place.kind == "moving":
            return self.memory_at(int(self.pointers[place.where]), storage, type)
        assert self.arena is not None
        end = place.where + int(type.size) * type.dtype.itemsize
        return self.arena[place.where:end].view(type.dtype.numpy).reshape(type.shape)

    def bound(self, number: int) -> Array:
        """An argument or result of the run that goes on."""
        found: Array = ctypes.cast(self.objects[number], ctypes.py_object).value
        return found

    def memory_at(self, address: int, storage: Storage, type: TensorType) -> Array:
        """The memory at an address as an array that keeps alive what it is a part of."""
        constants = [home.data for home in homes(storage) if home.data is not None]
        size = int(type.size) * type.dtype.itemsize
        arrays = map(self.bound, range(len(self.layout.params) + len(self.layout.results)))
        for whole in (self.arena, *arrays, *self.cells.chunks, *constants):
            start = address - whole.ctypes.data if whole is not None else -1
            if whole is not None and 0 <= start <= whole.nbytes - size:
                return whole.reshape(-1).view(np.uint8)[start:start + size].view(type.dtype.numpy).reshape(type.shape)
        raise AssertionError("a moving storage lies in none of the memory of this run")


def _host_steps(frame: ref[Frame]) -> Generator[bool, int, None]:
    """Do the steps whose numbers are sent, and say whether they were done.

    A signal is handled where a function of Python begins, too: this one goes on within `try`, so nothing that a handler
    raises is lost on the way through machine code, with a step that was not done.
    """
    done = False
    while True:
        try:
            while True:
                number = yield done
                done = _alive(frame).host_step(number)
        except GeneratorExit:
            return
        except BaseException as error:
            done = False
            _alive(frame).fail(error)


def _alive(frame: ref[Frame]) -> Frame:
    found = frame()
    assert found is not None
    return found
