"""`tn.vmap`: a function of one example -> the function of a batch of them, without a loop.

Inside, a tensor that differs from example to example shows the function the shape of one and holds all of them, the
batch axis in front.  An operator call on such tensors is the same operator on the whole batch, as its batching rule
(`tenon.ops.batching`) says; an operator without one runs example by example.  Where Python asks for the
elements of an example, the function goes another way (`tenon.transforms.vmap_calls`).
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.capture.code_monitor import UnsafeCall
from tenon.capture.pytree import Structure, flatten
from tenon.dims.symbolic_dim import Dim
from tenon.eager.dispatch import TensorInterpreter
from tenon.errors import ArgumentError, CaptureError, ShapeError, user_location
from tenon.graph.op import Op, interpreter, using
from tenon.graph.synonyms import also_named
from tenon.ops.batching import Arguments, rule_of
from tenon.ops.branches import as_tuple
from tenon.ops.joining_and_axes import stack
from tenon.ops.shape import broadcast_to, permute
from tenon.tensor import Tensor, asarray
from tenon.tensor_state import Changes, Examples, Payload
from tenon.transforms.vmap_calls import run_batched
from tenon.transforms.vmap_collectives import COLLECTIVE
from tenon.transforms.vmap_control_flow import CONTROL
from tenon.types import DType, normalize_axis


class Batched(Examples):
    """Examples of one level of `vmap`, which tells nested ones apart."""

    __slots__ = ("level",)

    def __init__(self, inner: Tensor, level: Batching):
        super().__init__(inner)
        self.level = level

    def detached(self) -> Batched:
        """The same examples, cut off from what they were computed from."""
        return Batched(self.inner.detach(), self.level)

    @property
    def base(self) -> TensorInterpreter:
        """The interpreter around the outermost level."""
        outer = self.level.outer
        while isinstance(outer, Batching):
            outer = outer.outer
        return outer

    def needs_value(self, what: str) -> UnsafeCall:
        """Python code needs the elements of one example: its graph may do without (`tenon.transforms.one_example`)."""
        return UnsafeCall(f"{what} needs the elements of one example", where=user_location(), convertible=True)


class Batching(TensorInterpreter):
    """Operator calls on examples -> operator calls on batches, for `outer` to decide about."""

    def __init__(self, outer: TensorInterpreter, size: Dim, mesh_axis: str | None = None):
        self.outer, self.size, self.mesh_axis = outer, size, mesh_axis

    def opens(self, op: Op) -> bool:
        """Composites stay whole where a rule says what they are on a batch."""
        return op not in CONTROL and rule_of(op) is None

    def evaluate(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> tuple[Payload, ...]:
        """The operator on the whole batch; as it is where no input differs between examples."""
        batched = tuple(map(self.holds, inputs))
        if not any(batched) and (self.mesh_axis is None or self.mesh_axis not in attrs.get("over", ())):
            with using(self.outer):
                return self.outer.evaluate(op, inputs, attrs)
        if op.data_dependent:
            raise CaptureError(f"{op.name}: the shape of the result depends on the data and may differ between the "
                               f"examples of tn.vmap", hint="keep the shape: tn.where(mask, x, other)")
        given = tuple(x.payload.inner if b else x for x, b in zip(inputs, batched, strict=True))
        arguments = Arguments(self.size, given, batched, self)
        with using(self.outer):
            rule = CONTROL.get(op) or COLLECTIVE.get(op) or rule_of(op)
            out = rule(op, arguments, **attrs) if rule is not None else NotImplemented
        if out is NotImplemented and op.expand is not None:
            with using(self):
                return tuple(x.payload for x in as_tuple(op.expand(*inputs, **attrs)))
        with using(self.outer):
            outputs = one_by_one(op, arguments, attrs) if out is NotImplemented else as_tuple(out)
        return tuple(Batched(y, self) for y in outputs)

    def cast(self, x: Any, dtype: DType | None) -> Any:
        """A number is what it is around this level, where it may change from call to call."""
        own = isinstance(x, Tensor) and (x.weak is None or self.holds(x))
        return super().cast(x, dtype) if own else self.outer.cast(x, dtype)

    def holds(self, x: Any) -> bool:
        """Whether this is a tensor that differs between the examples of this level."""
        return isinstance(x, Tensor) and isinstance(x.payload, Batched) and x.payload.level is self

    def enter(self, x: Tensor, axis: int) -> Tensor:
        """One example, from a tensor that holds them along `axis`."""
        return Tensor(Batched(to_front(x, axis), self))

    def leave(self, x: Any, axis: int | None) -> Any:
        """All examples of a result, along `axis`; None for a result that does not differ between them."""
        if self.holds(x):
            if axis is None:
                raise ArgumentError("vmap: a result with out_axes=None differs between the examples",
                                    hint="give its axis, or reduce over the batch outside tn.vmap")
            return from_front(x.payload.inner, axis)
        if axis is None or not isinstance(x, (Tensor, np.ndarray, bool, int, float, complex)):
            return x
        x = x if isinstance(x, Tensor) else asarray(x)
        return from_front(broadcast_to(x, shape=(self.size, *x.shape)), axis)


def one_by_one(op: Op, arguments: Arguments, attrs: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """The operator on every example in turn: right for all, and slow."""
    if arguments.size == 0:
        raise ShapeError(f"vmap: {op.name} has no batching rule, so it needs at least one example")
    results = []
    for k in range(int(arguments.size)):
        example = tuple(x[k] if b else x for x, b in zip(arguments.inputs, arguments.batched, strict=True))
        results.append(as_tuple(interpreter().apply(op, example, dict(attrs))))
    return tuple(stack(list(group)) for group in zip(*results, strict=True))


def to_front(x: Tensor, axis: int) -> Tensor:
    """The tensor with `axis` moved to the front."""
    return x if axis == 0 else permute(x, axes=(axis, *(k for k in range(x.ndim) if k != axis)))


def from_front(x: Tensor, axis: int) -> Tensor:
    """The tensor with its first axis moved to `axis`."""
    axis = normalize_axis(axis, x.ndim, "out_axes")
    if axis == 0:
        return x
    order = list(range(1, x.ndim))
    order.insert(axis, 0)
    moved: Tensor = permute(x, axes=tuple(order))
    return moved


# ---------------------------------------------------------------- the public function

@also_named(func="f", in_dims="in_axes", out_dims="out_axes")
def vmap(f: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, mesh_axis: str | None = None, *,
         randomness: str = "error", chunk_size: int | None = None) -> Callable[..., Any]:
    """The function that runs `f`, written for one example, on a batch of examples.

    `in_axes` says along which axis an argument holds the examples, None that all share it: one number for all
    arguments, or a tuple with an entry an argument, which may itself be a nest that begins as the argument does.
    `out_axes` says the same of the results.  Arguments by keyword are batched along their first axis.  Python's control
    flow may decide by the elements of an example, each its own way.  Random numbers drawn inside are the same for all
    examples.  With a name as `mesh_axis`, the examples are ranks along that axis of a mesh for the collectives of
    `tn.distributed` inside.  PyTorch's `chunk_size`, which saves memory there, means nothing.  Raises ShapeError when
    the sizes of the batch differ, and ArgumentError for `randomness="different"`.

    >>> dot = lambda x, y: (x * y).sum()
    >>> tn.vmap(dot, in_axes=(0, None))(tn.ones((3, 2)), tn.tensor([1.0, 2.0]))
    tensor([3., 3., 3.])
    >>> tn.vmap(lambda x: tn.distributed.all_reduce(x, over="data"), mesh_axis="data")(tn.arange(3))
    tensor([3, 3, 3])
    """
    if randomness == "different":
        raise ArgumentError("vmap: random numbers are the same for all examples, not different ones",
                            hint="draw them before, with the batch axis, and pass them in")
    if not callable(f):
        raise ArgumentError(f"vmap takes a function, not {type(f).__name__}")
    if mesh_axis is not None and not isinstance(mesh_axis, str):
        raise ArgumentError(f"vmap: mesh_axis={mesh_axis!r} is no name of a mesh axis", hint='mesh_axis="data"')

    @functools.wraps(f, updated=())
    def batched(*args: Any, **keywords: Any) -> Any:
        outer = interpreter()
        assert isinstance(outer, TensorInterpreter)
        leaves, structure = flatten((args, keywords))
        leaves = [asarray(x) if isinstance(x, (np.ndarray, np.generic)) else x for x in leaves]
        axes = argument_axes(in_axes, args, structure)
        axes = [None if axis is None or not is_data(x) else checked_axis(x, axis)
                for x, axis in zip(leaves, axes, strict=True)]
        level = Batching(outer, batch_size(leaves, axes), mesh_axis)
        examples = [x if axis is None else level.enter(x, axis) for x, axis in zip(leaves, axes, strict=True)]
        changes = Changes()
        result = run_batched(f, examples, structure, level, changes)
        results, form = flatten(result)
        del examples, result
        refuse_leaks(changes, results, level)
        return form.build(map(level.leave, results, spread(out_axes, form, "out_axes")))
    return batched


def refuse_leaks(changes: Changes, results: Sequence[Any], level: Batching) -> None:
    """Undo what the function assigned to tensors from outside, and raise, if that differs between examples."""
    ours = {id(x) for x in results}

    def leaked() -> bool:
        changes.settle()
        return any(level.holds(x) and id(x) not in ours for x, _ in changes.before)
    if not leaked():
        return
    changes.before.clear()
    gc.collect()                # a tensor that only a cycle holds is gone, too
    if leaked():
        changes.restore()
        raise CaptureError("vmap: the function assigns to a tensor from outside what differs between the examples",
                           hint="return it, and assign outside tn.vmap")


def argument_axes(in_axes: Any, args: Sequence[Any], structure: Structure) -> list[Any]:
    """The axis of every leaf of the arguments."""
    positional, named = structure.children
    if isinstance(in_axes, (tuple, list)):
        if len(in_axes) != len(args):
            raise ArgumentError(f"vmap: in_axes={in_axes} has {len(in_axes)} entries, and {len(args)} positional "
                                f"arguments were given")
        in_axes = tuple(in_axes)
    return spread(in_axes, positional, "in_axes") + [0] * named.leaves


def spread(axes: Any, structure: Structure, what: str) -> list[Any]:
    """One axis for every leaf, from a nest that may stop where `structure` goes on."""
    if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)):
        return [axes] * structure.leaves
    form = flatten(axes)[1]
    children = axes_of_children(axes)
    if children is None or form.kind is not structure.kind or form.labels != structure.labels:
        raise ArgumentError(f"vmap: {what}={axes!r} does not have the form of what it describes",
                            hint="an entry is an axis, None, or a nest of such like the argument")
    pairs = zip(children, structure.children, strict=True)
    return [axis for child, below in pairs for axis in spread(child, below, what)]


def axes_of_children(axes: Any) -> list[Any] | None:
    """The entries of one level of a nest; None for a leaf."""
    if isinstance(axes, dict):
        return list(axes.values())
    return list(axes) if isinstance(axes, (tuple, list)) else None


def is_data(x: Any) -> bool:
    """Whether a leaf holds examples, if an axis is given for it; None, text and the like are shared by all."""
    return isinstance(x, (Tensor, int, float, complex)) and not isinstance(x, bool)


def checked_axis(x: Any, axis: int) -> int:
    """The axis counted from the front."""
    if not isinstance(x, Tensor) or x.ndim == 0:
        shown = f"the number {x!r}" if not isinstance(x, Tensor) else "a scalar"
        raise ShapeError(f"vmap: {shown} has no axis {axis} to hold examples",
                         hint="in_axes=None shares it by all examples")
    return normalize_axis(axis, x.ndim, "vmap: in_axes")


def batch_size(leaves: Sequence[Any], axes: Sequence[int | None]) -> Dim:
    """The number of examples."""
    found = [(x, axis) for x, axis in zip(leaves, axes, strict=True) if axis is not None]
    if not found:
        raise ArgumentError("vmap: no argument holds examples", hint="in_axes must name an axis of some tensor")
    first, axis = found[0]
    for x, other in found[1:]:
        if x.shape[other] != first.shape[axis]:
            raise ShapeError(f"vmap: the number of examples differs: {first.type} has {first.shape[axis]} along axis "
                             f"{axis}, {x.type} has {x.shape[other]} along axis {other}")
    size: Dim = first.shape[axis]
    return size
