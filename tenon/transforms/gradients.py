"""First derivatives: a function -> the function of its gradients, or of products with its Jacobian.

    tn.grad(f)(x)                            the gradient of a scalar
    tn.value_and_grad(f)(x)                  both
    tn.vjp(f, x) -> out, pullback            pullback(g) is g times the Jacobian
    tn.jvp(f, (x,), (t,)) -> out, tangent    the Jacobian times t

Arguments and results are nests.  All of them can be nested in one another, in `tn.vmap` and in `tn.jit`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tenon.capture.cond_switch import rewritten
from tenon.capture.convert.union_value import UnionValue, each, resolved
from tenon.errors import ArgumentError, GradientError
from tenon.ops.creation import ones_like, zeros_like
from tenon.tensor import Tensor, asarray
from tenon.transforms.differentiate import NUMBERS, Followed, LeafNest, is_differentiable, settle

Function = Callable[..., Any]


def grad(f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """The function that returns the gradient of the scalar `f` with respect to the arguments at `argnums`.

    The gradient has the form of the argument, or is a tuple of such when `argnums` is a sequence.  With `has_aux`, `f`
    returns (scalar, anything), and the result is (gradient, anything).

    >>> tn.grad(lambda x: (x * x).sum())(tn.tensor([1.0, 2.0]))
    tensor([2., 4.])
    """
    both = value_and_grad(f, argnums, has_aux)

    @functools.wraps(f, updated=())
    def gradient(*args: Any, **keywords: Any) -> Any:
        value, found = both(*args, **keywords)
        return (found, value[1]) if has_aux else found
    return gradient


def value_and_grad(f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """The function that returns the value of the scalar `f` and its gradient, as `grad` does.

    >>> tn.value_and_grad(lambda x: x * x)(3.0)
    (tensor(9.), tensor(6.))
    """
    check_callable("grad", f)

    @functools.wraps(f, updated=())
    def value_and_gradient(*args: Any, **keywords: Any) -> Any:
        positions = check_argnums(argnums, args)
        several = [k for k in positions if type(args[k]) is UnionValue]      # of one of several shapes, by the data
        if several:
            return each(args[several[0]], lambda x: value_and_gradient(*placed(args, several[:1], [x]), **keywords))
        primals = LeafNest.of(tuple(args[k] for k in positions))
        for k, argument in zip(positions, flat_arguments(primals), strict=True):
            check_has_derivative("grad", k, argument)
        run = Followed(lambda forks: f(*placed(args, positions, primals.replace(forks)), **keywords), primals.tensors)
        value, aux = split_aux("grad", run.result, has_aux)
        value = check_scalar(value)
        gradients = primals.fill(run.pull([value], [ones_like(value)]))
        found = gradients[0] if isinstance(argnums, int) else gradients
        settled = settle(value)
        return ((settled, settle(aux)) if has_aux else settled), found
    return value_and_gradient


def vjp(f: Function, *primals: Any, has_aux: bool = False) -> Any:
    """The result of `f(*primals)`, and its pullback: from a gradient of the result to a tuple of those of the primals.

    The pullback may be called any number of times.  With `has_aux`, `f` returns (result, anything), and the anything
    comes third.

    >>> y, pullback = tn.vjp(tn.sin, tn.tensor(0.0))
    >>> pullback(tn.tensor(2.0))
    (tensor(2.),)
    """
    check_callable("vjp", f)
    f, inputs = rewritten(f), LeafNest.of(primals)
    run = Followed(lambda forks: f(*inputs.replace(forks)), inputs.tensors)
    result, aux = split_aux("vjp", run.result, has_aux)
    outputs = LeafNest.of(result)

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        seeds = outputs.match(cotangent, "the pullback's argument")
        gradients: tuple[Any, ...] = inputs.fill(run.pull(outputs.tensors, seeds))
        return gradients
    settled = settle(result)
    return (settled, pullback, settle(aux)) if has_aux else (settled, pullback)


def jvp(f: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """The result of `f(*primals)`, and how it changes when the primals change by `tangents`: the Jacobian times them.

    The pullback is linear in its argument, and its own pullback is the product wanted: no operator needs a second rule
    (J. Townsend, "A new trick for calculating Jacobian vector products", 2017).

    >>> tn.jvp(lambda x: x * x, (tn.tensor(3.0),), (tn.tensor(1.0),))
    (tensor(9.), tensor(6.))
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentError("jvp: primals and tangents are tuples with one entry an argument",
                            hint="tn.jvp(f, (x,), (t,))")
    result, pullback, *aux = vjp(f, *primals, has_aux=has_aux)
    inputs, outputs = LeafNest.of(tuple(primals)), LeafNest.of(result)
    given = inputs.match(tuple(tangents), "jvp: tangents")
    seeds = [zeros_like(y) for y in outputs.tensors]

    def transposed(cotangents: list[Tensor]) -> list[Tensor]:
        return [x for x in LeafNest.of(pullback(outputs.fill(cotangents))).leaves if x is not None]
    run = Followed(transposed, seeds)
    return (result, outputs.fill(run.pull(run.result, given)), *aux)


# ---------------------------------------------------------------- arguments and results

def check_callable(name: str, f: Any) -> None:
    """Raise ArgumentError unless `f` can be called."""
    if not callable(f):
        raise ArgumentError(f"{name} takes a function, not {type(f).__name__}",
                            hint=f"tn.{name}(f)(x) differentiates the function; loss.backward() the tensor")


def check_argnums(argnums: int | Sequence[int], args: Sequence[Any]) -> list[int]:
    """Positions of arguments counted from the front."""
    positions = [argnums] if isinstance(argnums, int) else list(argnums)
    if wrong := [k for k in positions if not -len(args) <= k < len(args)]:
        raise ArgumentError(f"grad: argnums names argument {wrong[0]}, and {len(args)} positional arguments were given",
                            hint="what is passed by keyword is not differentiated")
    normal = [k % len(args) for k in positions]
    if len(set(normal)) < len(normal):
        raise ArgumentError(f"grad: argnums names an argument twice: {tuple(positions)}")
    return normal


def flat_arguments(primals: LeafNest) -> list[list[Any]]:
    """The leaves of each of several arguments."""
    leaves = iter(primals.leaves)
    return [[next(leaves) for _ in range(child.leaves)] for child in primals.structure.children]


def check_has_derivative(name: str, position: int, leaves: Sequence[Any]) -> None:
    """Raise GradientError unless some leaf is a tensor of floating elements."""
    if any(map(is_differentiable, leaves)):
        return
    kinds = " and ".join(sorted({str(x.type) if isinstance(x, Tensor) else type(x).__name__ for x in leaves}))
    raise GradientError(f"{name}: argument {position} has no floating elements to differentiate by, it is "
                        f"{kinds or 'empty'}", hint="cast it with .astype(tn.float32), or choose others with argnums=")


def placed(args: Sequence[Any], positions: Sequence[int], new: Sequence[Any]) -> list[Any]:
    """The arguments with some of them replaced."""
    listed = list(args)
    for k, argument in zip(positions, new, strict=True):
        listed[k] = argument
    return listed


def split_aux(name: str, result: Any, has_aux: bool) -> tuple[Any, Any]:
    """The result proper and what comes with it."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise ArgumentError(f"{name}(has_aux=True): the function must return a pair, (result, anything)")
    return result


def check_scalar(value: Any) -> Tensor:
    """The value that is differentiated, as a tensor."""
    value = resolved(value) if type(value) is UnionValue else value
    value = asarray(value) if isinstance(value, NUMBERS) else value
    if isinstance(value, Tensor) and value.shape == () and value.dtype.is_floating:
        return value
    shown = str(value.type) if isinstance(value, Tensor) else type(value).__name__
    hint = "reduce it, as in loss.mean(); tn.jacobian and tn.vjp differentiate functions with other results"
    if isinstance(value, tuple):
        hint = "has_aux=True lets the function return (scalar, anything)"
    raise GradientError(f"grad: the function returned {shown}, it must return a floating scalar", hint=hint)

