"""Backward through a tape of eager calls, as machine code, where the calls were elementwise.

    above(nodes)                    the nodes that these depend on, and they; None where one of them is released
    down(tape, sums, pull, add)
    release(tape, release)          each node by what Python does, `release(node)`, or the same

`down` goes from the end of a list of nodes to its beginning.  `sums` is a dictionary: nodes, and tensors that no call
made, -> gradients so far.  The gradients of a node's inputs are programs (`gradient_interpreter.py`).
What is not usual is left to Python: `pull(node)` for a whole node, `add(x, gradient)` for one input.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenon.cpython import object_layout
from tenon.cpython.eager.gradient_interpreter import (
    ADD,
    DTYPE,
    FORMULAS,
    GIVEN,
    INPUT_COUNT,
    ITEM,
    KINDS,
    MAX_VALUES,
    NO_PLACE,
)
from tenon.cpython.eager.ndarray_access import MAX_ELEMENTS, OWN, count_of, run_loop
from tenon.cpython.eager.tensor_objects import Objects, SharedObject, drop, held, shared
from tenon.cpython.object_layout import LENGTH
from tenon.llvm.function_builder import NativeFunction, NativeModule
from tenon.llvm.ir_values import HALF, POINTER, WORD, Pointer, Word

MAX_GIVEN = 64                  # arrays that the function of a call's gradients takes


def define_tape(module: NativeModule, objects: Objects) -> None:
    """The functions, in a module that has these objects, and formulas."""
    writer = _WalkWriter(objects)
    module.define("give", writer.give, HALF, POINTER, POINTER, POINTER, POINTER)
    module.define("node", writer.node, HALF, POINTER, POINTER)
    module.define("node_of_call", writer.node_of_call, HALF, POINTER, POINTER)
    module.define("visit", _visit, HALF, POINTER, POINTER, POINTER)
    module.define("above", writer.above, POINTER, POINTER, POINTER, WORD, public=True)
    module.define("down", _down, POINTER, POINTER, POINTER, WORD, public=True)
    module.define("release", writer.release, POINTER, POINTER, POINTER, WORD, public=True)


class _WalkWriter:
    """The functions that look into Tenon's objects."""

    def __init__(self, objects: Objects):
        self.offsets = objects.offsets

    def above(self, f: NativeFunction, owner: Pointer, arguments: Pointer, count: Word) -> None:
        at, first = self.offsets, arguments.pointer()
        found, seen = f.call("PyList_New", f.word(0)), f.variable(f.null())
        f.require(~found.is_null())
        seen.set(f.call("PySet_New", f.null()))
        good = f.variable((~seen().is_null()).wide().low())
        with f.where(good() != 0), f.each(first.behind(LENGTH).word()) as k:
            good.set(good() & f.call("visit", found, seen(), first.field(object_layout.LIST_ITEMS).pointer(k)))
        next, released = f.variable(0), f.variable(0)
        with f.loop(lambda: (good() != 0) & (next() < found.behind(LENGTH).word())):
            node = found.field(object_layout.LIST_ITEMS).pointer(next())
            next.set(next() + 1)
            with f.where(node.field(at.payloads).behind(LENGTH).word() == 0):
                released.set(1)
                good.set(0)
            inputs = node.field(at.inputs)
            with f.each(inputs.behind(LENGTH).word()) as n:
                x = inputs.at(n).field(object_layout.ITEMS)
                with f.where(f.call("is_tensor", x) != 0):
                    made_by = x.field(at.own).field(at.node)
                    with f.unless(made_by == shared(f, SharedObject.NONE)):
                        good.set(good() & f.call("visit", found, seen(), made_by))
        with f.unless(seen().is_null()):
            drop(f, seen())
        with f.where((good() != 0) & (f.call("PyList_Reverse", found) == 0)):
            f.give(found)
        drop(f, found)
        f.require(released() != 0)
        f.give(held(f, shared(f, SharedObject.NONE)))

    def release(self, f: NativeFunction, owner: Pointer, arguments: Pointer, count: Word) -> None:
        at, tape, k = self.offsets, arguments.pointer(), f.variable(0)
        empty, given = shared(f, SharedObject.EMPTY), f.words(1)
        after = {at.inputs: empty, at.payloads: empty, at.attrs: shared(f, SharedObject.NO_ATTRS),
                 at.root: shared(f, SharedObject.NONE)}
        of_calls = {at.arrays: empty, at.kept: empty}

        def put(node: Pointer, row: Mapping[int, Pointer]) -> None:
            for offset, now in row.items():
                before = node.field(offset)
                node.behind(offset).put(held(f, now))
                drop(f, before)
        with f.loop(lambda: k() < tape.behind(LENGTH).word()):
            node = held(f, tape.field(object_layout.LIST_ITEMS).pointer(k()))
            k.set(k() + 1)
            of_call = node.field(object_layout.TYPE) == shared(f, SharedObject.CALL_NODE)
            usual = of_call | (node.field(object_layout.TYPE) == shared(f, SharedObject.NODE))
            with f.where(usual):
                put(node, after)
            with f.where(of_call):
                put(node, of_calls)
            with f.unless(usual):
                given.put(node)
                out = f.call("PyObject_Vectorcall", arguments.pointer(1), given, f.word(1), f.null())
                with f.where(out.is_null()):
                    drop(f, node)
                    f.give()
                drop(f, out)
            drop(f, node)
        f.give(held(f, shared(f, SharedObject.NONE)))

    def node(self, f: NativeFunction, arguments: Pointer, node: Pointer) -> None:
        """Whether what has come to a node was given to its inputs; 0: nothing was done, or there is an error."""
        at, sums = self.offsets, arguments.pointer(1)
        f.require(node.field(object_layout.TYPE) == shared(f, SharedObject.NODE))
        f.require(node.field(at.attrs) == shared(f, SharedObject.NO_ATTRS))
        payloads = node.field(at.payloads)
        f.require(payloads.behind(LENGTH).word() == 1)
        y = payloads.field(object_layout.ITEMS)
        f.require(f.call("is_plain", y) != 0)
        f.require(count_of(f, y) < MAX_ELEMENTS + 1)
        g = f.call("PyDict_GetItem", sums, node)
        with f.where(g.is_null()):
            f.give(1)
        program = f.call("program", node, y)
        f.require(~program.is_null())
        values, steps = f.words(MAX_VALUES), f.words(MAX_VALUES)
        item, count = program.word(ITEM), program.word(INPUT_COUNT)
        step = f.call("step_of", g, y, program)
        f.require(step != NO_PLACE)
        for place, (value, width) in enumerate(((g, step), (y, item))):
            values.put(value, place)
            steps.put(width, place)
        inputs = node.field(at.inputs)
        with f.each(count) as k, f.where(program.at(k).word(KINDS) == 0):
            x = inputs.at(k).field(object_layout.ITEMS)
            own = x.field(at.own)
            a = own.field(at.payload)
            f.require(f.call("is_plain", a) != 0)
            f.require((a.field(object_layout.DTYPE) == program.pointer(DTYPE)) & (f.call("same_sizes", a, y) != 0))
            f.require(~x.field(at.leaf).is_null() | (own.field(at.node) != shared(f, SharedObject.NONE)))
            values.put(a, k + GIVEN)
            steps.put(item, k + GIVEN)
        for found in (g, inputs, payloads):
            held(f, found)
        failed = f.variable((f.call("PyDict_DelItem", sums, node) != 0).wide())
        with f.each(count) as k:
            start, x = program.at(k).word(FORMULAS), inputs.at(k).field(object_layout.ITEMS)
            with f.where((failed() == 0) & (start != 0)):
                with f.where(x.field(at.own).field(at.requires_grad) == shared(f, SharedObject.TRUE)):
                    gradient = f.call("run_formula", program, program.at(start), values, steps, y)
                    good = f.variable(0)
                    with f.unless(gradient.is_null()):
                        good.set(f.call("give", arguments, program, x, gradient).wide())
                        drop(f, gradient)
                    with f.where(good() == 0):
                        failed.set(1)
        drop(f, g, inputs, payloads)
        f.give((failed() == 0).wide().low())

    def node_of_call(self, f: NativeFunction, arguments: Pointer, node: Pointer) -> None:
        """The same for a call that was remembered and has one output, by the function of its gradients."""
        at, sums = self.offsets, arguments.pointer(1)
        f.require(node.field(object_layout.TYPE) == shared(f, SharedObject.CALL_NODE))
        payloads, inputs, rule = node.field(at.payloads), node.field(at.inputs), node.field(at.node_rule)
        f.require(payloads.behind(LENGTH).word() == 1)
        g = f.call("PyDict_GetItem", sums, node)
        with f.where(g.is_null()):
            f.give(1)
        y = payloads.field(object_layout.ITEMS)
        f.require(g.field(object_layout.TYPE) == shared(f, SharedObject.ARRAY))
        f.require(g.field(object_layout.DTYPE) == y.field(object_layout.DTYPE))
        rows = node.field(at.arrays), node.field(at.kept)
        f.require(rows[0].behind(LENGTH).word() + rows[1].behind(LENGTH).word() + GIVEN < MAX_GIVEN + 1)
        given, count = f.words(MAX_GIVEN), f.variable(GIVEN)
        given.put(g)
        given.put(y, 1)
        for row in rows:
            with f.each(row.behind(LENGTH).word()) as k:
                given.at(count()).put(row.at(k).field(object_layout.ITEMS))
                count.set(count() + 1)
        taken = g, payloads, inputs, rule, *rows
        for found in taken:
            held(f, found)
        out = f.call("PyObject_Vectorcall", rule.field(at.late), given, count(), f.null())
        good = f.variable(0)
        with f.where(out.is_null()), f.where(f.call("PyErr_ExceptionMatches", shared(f, SharedObject.OF_NUMPY)) != 0):
            f.call("PyErr_Clear")
        with f.unless(out.is_null()):
            good.set((f.call("PyDict_DelItem", sums, node) == 0).wide())
            several = out.field(object_layout.TYPE) == shared(f, SharedObject.TUPLE)
            wanted = rule.field(at.wanted)
            with f.each(wanted.behind(LENGTH).word()) as k, f.where(good() != 0):
                gradient = f.variable(out)
                with f.where(several):
                    gradient.set(out.at(k).field(object_layout.ITEMS))
                place = f.call("PyLong_AsSsize_t", wanted.at(k).field(object_layout.ITEMS))
                x = inputs.at(place).field(object_layout.ITEMS)
                good.set(f.call("give", arguments, f.null(), x, gradient()).wide())
            drop(f, out)
        drop(f, *taken)
        f.give(good().low())

    def give(self, f: NativeFunction, arguments: Pointer, program: Pointer, x: Pointer, gradient: Pointer) -> None:
        """Add to the gradient of an input; 0: there is an error."""
        at, sums = self.offsets, arguments.pointer(1)
        above = x.field(at.own).field(at.node)
        leaf = above == shared(f, SharedObject.NONE)
        key = f.variable(above)
        with f.where(leaf):
            key.set(x.field(at.leaf))
        several = f.variable(0)
        with f.unless(leaf):
            several.set((above.field(at.payloads).behind(LENGTH).word() != 1).wide())
        with f.where(several() == 0):
            before = f.call("PyDict_GetItem", sums, key())
            with f.where(before.is_null()):
                f.give((f.call("PyDict_SetItem", sums, key(), gradient) == 0).wide().low())
            plain = f.variable(0)
            with f.unless(program.is_null()):
                plain.set((f.call("is_plain", before) & f.call("is_plain", gradient)).wide())
            with f.where(plain() != 0), f.where(f.call("same_sizes", before, gradient) != 0):
                dtype = program.pointer(DTYPE)
                same = before.field(object_layout.DTYPE) == dtype
                with f.where(same & (gradient.field(object_layout.DTYPE) == dtype)):
                    self._add(f, program, sums, key(), before, gradient)
        given = f.words(2)
        given.put(x)
        given.put(gradient, 1)
        out = f.call("PyObject_Vectorcall", arguments.pointer(3), given, f.word(2), f.null())
        f.require(~out.is_null())
        drop(f, out)
        f.give(1)

    def _add(self, f: NativeFunction, program: Pointer, sums: Pointer, key: Pointer, before: Pointer, gradient: Pointer
             ) -> None:
        """Add, to the memory of what was there where nobody else has it; return."""
        item = program.word(ITEM)
        alone = (before.half() == 1) & ((before.half(object_layout.FLAGS) & OWN) == OWN)
        with f.where(alone):
            run_loop(f, program.at(ADD), [before, gradient, before], [item] * 3)
            f.give(1)
        total = f.call("made", program.pointer(DTYPE), before)
        f.require(~total.is_null())
        run_loop(f, program.at(ADD), [before, gradient, total], [item] * 3)
        good = f.call("PyDict_SetItem", sums, key, total) == 0
        drop(f, total)
        f.give(good.wide().low())


def _visit(f: NativeFunction, found: Pointer, seen: Pointer, node: Pointer) -> None:
    """Add a node to the list unless it is there; 0: an error."""
    there = f.call("PySet_Contains", seen, node)
    with f.where(there == 1):
        f.give(1)
    f.require(there == 0)
    f.require(f.call("PySet_Add", seen, node) == 0)
    f.give((f.call("PyList_Append", found, node) == 0).wide().low())


def _down(f: NativeFunction, owner: Pointer, arguments: Pointer, count: Word) -> None:
    tape, pull, given = arguments.pointer(), arguments.pointer(2), f.words(1)
    left = f.variable(tape.behind(LENGTH).word())
    with f.loop(lambda: (left() != 0) & ~(left() > tape.behind(LENGTH).word())):
        left.set(left() - 1)
        node = held(f, tape.field(object_layout.LIST_ITEMS).pointer(left()))
        with f.where((f.call("node", arguments, node) | f.call("node_of_call", arguments, node)) == 0):
            out = f.variable(f.null())
            with f.where(f.call("PyErr_Occurred").is_null()):
                given.put(node)
                out.set(f.call("PyObject_Vectorcall", pull, given, f.word(1), f.null()))
            with f.where(out().is_null()):
                drop(f, node)
                f.give()
            drop(f, out())
        drop(f, node)
    f.give(held(f, shared(f, SharedObject.NONE)))
