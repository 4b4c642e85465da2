"""`tn.autograd.Function`: PyTorch's way to write a function with its gradient: a class, made of `custom_vjp`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.errors import ArgumentError
from tenon.ops.creation import zeros
from tenon.tensor import Tensor
from tenon.transforms.custom_gradient import custom_vjp


class FunctionContext:
    """What `forward` leaves for `backward`: `save_for_backward(...)`, and whatever attributes it sets."""

    saved_tensors: tuple[Any, ...] = ()
    needs_input_grad: tuple[bool, ...] = ()
    materialize_grads: bool = True

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors, or None, as `saved_tensors`."""
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """`backward` says nothing of these results: what it is given for them is not read."""

    def set_materialize_grads(self, value: bool) -> None:
        """Whether `backward` gets zeros, not None, for results that nothing depends on; so it is at first.

        Gradients of a compiled function that are taken from outside are zeros either way.
        """
        self.materialize_grads = value

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Raise: a Function changes no tensor in place here."""
        raise ArgumentError("autograd.Function: mark_dirty is not supported",
                            hint="return a new tensor, and assign it where the function is called")


class AutogradFunction:
    """A function with a gradient of its own: a class with static `forward(ctx, *args)` and `backward(ctx, *grads)`.

    `Name.apply(*args)` calls it.  `forward` may leave out `ctx` where there is a `setup_context(ctx, inputs, output)`.
    `backward` returns a gradient for every argument, None where there is none.  The rule holds in `tn.jit` and
    `tn.vmap`; higher derivatives differentiate `backward`.  Raises ArgumentError where methods are missing.

    >>> class Clipped(tn.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x, most):
    ...         ctx.most = most
    ...         return x
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         return tn.clip(g, -ctx.most, ctx.most), None
    >>> tn.grad(lambda x: (10 * Clipped.apply(x, 2.0)).sum())(tn.ones(2))
    tensor([2., 2.])
    """

    @staticmethod
    def forward(*args: Any) -> Any:
        """The results; a subclass has one."""
        raise ArgumentError("autograd.Function: the class has no forward",
                            hint="def forward(ctx, x): ... as staticmethod")

    @staticmethod
    def backward(ctx: FunctionContext, *grads: Any) -> Any:
        """The gradients of the arguments; a subclass has one."""
        raise ArgumentError("autograd.Function: the class has no backward",
                            hint="def backward(ctx, g): ... as staticmethod")

    @staticmethod
    def setup_context(ctx: FunctionContext, inputs: tuple[Any, ...], output: Any) -> None:
        """What a `forward` without `ctx` leaves for `backward`."""

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """The results for these arguments."""
        needs = tuple(isinstance(x, Tensor) and x.requires_grad for x in args)

        def run(*inputs: Any) -> tuple[Any, FunctionContext]:
            ctx = FunctionContext()
            ctx.needs_input_grad = needs
            if cls.setup_context is AutogradFunction.setup_context:
                return cls.forward(ctx, *inputs), ctx
            output = cls.forward(*inputs)
            cls.setup_context(ctx, inputs, output)
            return output, ctx

        def fwd(*inputs: Any) -> tuple[Any, Any]:
            output, ctx = run(*inputs)
            results = output if isinstance(output, (tuple, list)) else (output,)
            return output, (dict(vars(ctx)), [(x.shape, x.dtype) if isinstance(x, Tensor) else None for x in results])

        def bwd(kept: Any, g: Any) -> tuple[Any, ...]:
            ctx = FunctionContext()
            vars(ctx).update(kept[0])
            grads = list(g) if isinstance(g, (tuple, list)) else [g]
            if ctx.materialize_grads:
                grads = _with_zeros(grads, kept[1])
            found = cls.backward(ctx, *grads)
            found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
            return found[:len(args)] if all(x is None for x in found[len(args):]) else found    # of defaults

        rule = custom_vjp(lambda *inputs: run(*inputs)[0])
        rule._name, rule._takes_none, rule._reads = cls.__name__, True, (cls, cls.forward, cls.backward)
        rule.defvjp(fwd, bwd)
        return rule(*args)


def _with_zeros(grads: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    """Gradients of zeros for results that nothing depends on."""
    return [zeros(like[0], dtype=like[1]) if g is None and like is not None else g
            for g, like in zip(grads, types, strict=True)]
