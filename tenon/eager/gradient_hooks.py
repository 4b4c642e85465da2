"""Functions that see gradients on their way: `x.register_hook(f)`, and what hooks of modules are made of.

    watched([a, b], told)       the same tensors, whose gradients `told` is given, and may replace

They stand on the tape as a call of their own.  `backward()` within a captured function calls them as part of it.  They
stand in no graph: where a gradient may come from outside of the function, or through a branch, it runs with graph
breaks.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from tenon.eager.grad_mode import is_grad_enabled
from tenon.eager.tape import TapeNode, linked, saved, saved_as
from tenon.errors import ArgumentError, GradientError
from tenon.tensor import Tensor
from tenon.tensor_state import AfterAccumulation, Hook, LeafHooks, TensorState, leaf_hooks, recorder, shown_to

Told = Callable[[Sequence[Any]], Sequence[Any]]


class Watching:
    """The operator of such a call: `told` gets the gradients of all results, None where there is none."""

    name, takes_none = "register_hook", True

    @staticmethod
    def vjp(g: Any, y: Any, *inputs: Any, told: Told, place: Any) -> Sequence[Any]:
        """The gradients as `told` gives them back."""
        return told(g if isinstance(y, tuple) else (g,))


WATCHING = Watching()


def watched(tensors: Sequence[Any], told: Told) -> list[Any]:
    """The tensors, with a place on the tape where `told` is given all their gradients; those without keep theirs."""
    places = [k for k, x in enumerate(tensors) if isinstance(x, Tensor) and x.requires_grad]
    if not places or not is_grad_enabled():
        return list(tensors)
    out, where = list(tensors), [_place(tensors[k]) for k in places]
    node = TapeNode(WATCHING, tuple([saved(tensors[k]) for k in places]), {"told": told, "place": where[0]},
                    tuple([tensors[k].payload for k in places]))
    for number, k in enumerate(places):
        out[k] = linked(node.payloads[number], node, number)
    return out


class Hooks:
    """The hooks of one tensor, in the order in which they were added; `retain` sees what they leave."""

    def __init__(self) -> None:
        self.hooks: LeafHooks = {}
        self.retain: Hook | None = None

    def __call__(self, gradients: Sequence[Any]) -> Sequence[Any]:
        gradient = shown_to(self.hooks, gradients[0])
        if self.retain is not None:
            self.retain(gradient)
        return [gradient]


class GradientHookHandle:
    """A hook that was added; `remove()` takes it away, as does the end of a `with` block."""

    def __init__(self, hooks: LeafHooks, hook: Hook | AfterAccumulation):
        self.hooks, self.key = hooks, max(hooks, default=-1) + 1
        hooks[self.key] = hook

    def remove(self) -> None:
        """Take the hook away; a second time does nothing."""
        self.hooks.pop(self.key, None)
        for leaf in [] if self.hooks else [leaf for leaf, hooks in leaf_hooks.items() if hooks is self.hooks]:
            del leaf_hooks[leaf]

    def __enter__(self) -> GradientHookHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def register_hook(self: Tensor, hook: Any) -> GradientHookHandle:
    """Call `hook(gradient)` when `backward` knows the gradient of this tensor.

    What the hook returns, if anything, replaces it.
    Returns a handle whose `remove()` takes it away.  Raises GradientError for a tensor that requires none.

    >>> x = tn.ones(2, requires_grad=True)
    >>> y = x * 3
    >>> handle = y.register_hook(lambda gradient: gradient * 10)
    >>> y.sum().backward()
    >>> x.grad
    tensor([30., 30.])
    """
    if not callable(hook):
        raise ArgumentError(f"register_hook: a function was expected, not {type(hook).__name__}")
    _refuse(self, "register_hook")
    return GradientHookHandle(_hooks_of_leaf(self) if self.own.node is None else _hooks_of_computed(self).hooks, hook)


def register_post_accumulate_grad_hook(self: Tensor, hook: Any) -> GradientHookHandle:
    """Call `hook(x)` when `backward` has added to `x.grad`, as optimizers that step inside of it do.

    Returns a handle whose `remove()` takes it away.  Raises GradientError for a tensor that requires no gradient, or is
    no leaf.

    >>> w = tn.ones(2, requires_grad=True)
    >>> handle = w.register_post_accumulate_grad_hook(lambda w: w.data.sub_(0.1 * w.grad))
    >>> (w * 3).sum().backward()
    >>> w.tolist()
    [0.699999988079071, 0.699999988079071]
    """
    if not callable(hook):
        raise ArgumentError(f"register_post_accumulate_grad_hook: a function was expected, not {type(hook).__name__}")
    _refuse(self, "register_post_accumulate_grad_hook")
    if not self.is_leaf:
        raise GradientError("register_post_accumulate_grad_hook: the tensor is no leaf",
                            hint="x.register_hook sees the gradient of any tensor")
    return GradientHookHandle(_hooks_of_leaf(self), AfterAccumulation(hook))


def _refuse(x: Tensor, what: str) -> None:
    if not x.requires_grad:
        raise GradientError(f"{what}: the tensor requires no gradient", hint="x.requires_grad_() first")
    _place(x)


def _place(x: Tensor) -> Any:
    """Where a capture has come to, for a tensor that it computes; None outside of captures."""
    capture = recorder.get()
    return None if capture is None else capture.place_of_hook(x)


def place_of_hooks(tape: Sequence[TapeNode]) -> Any:
    """Where a capture had come to when the first hook on this tape was added; None if there is none."""
    return next((node.attrs["place"] for node in tape if node.op is WATCHING and node.payloads), None)


def _hooks_of_leaf(x: Tensor) -> LeafHooks:
    if id(x) not in leaf_hooks:
        leaf_hooks[id(x)] = {}
        weakref.finalize(x, leaf_hooks.pop, id(x), None)
    return leaf_hooks[id(x)]


def _hooks_of_computed(x: Tensor) -> Hooks:
    state = x.own
    assert state.node is not None
    if not isinstance(state.node.attrs.get("told"), Hooks):
        _watch(x, state)
    told: Hooks = state.node.attrs["told"]
    return told


def _watch(x: Tensor, state: TensorState) -> None:
    """Put a place on the tape between a tensor and who computed it; who has read the tensor holds the same state."""
    maker = state.node
    assert maker is not None
    below = saved_as(x, TensorState(state.payload, True, None, maker, state.index))
    node = TapeNode(WATCHING, (below,), {"told": Hooks(), "place": _place(x)}, (state.payload,))
    node.number = maker.number + 0.5        # before those that read it
    state.node, state.index = node, 0


def retain_grad(self: Tensor) -> None:
    """Let `backward` leave the gradient of this tensor in its `grad`, though it is no leaf."""
    if self.is_leaf:
        return
    reference = weakref.ref(self)

    def keep(gradient: Tensor) -> None:
        tensor = reference()
        if tensor is not None:
            tensor.grad = gradient if tensor.grad is None else tensor.grad + gradient
    _refuse(self, "retain_grad")
    _hooks_of_computed(self).retain = keep
