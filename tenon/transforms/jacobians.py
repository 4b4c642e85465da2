"""All derivatives of a function at once: Jacobians row by row or column by column, Hessians, Hessian times vector.

The rows are one batch of pullbacks, the columns one batch of tangents: no loop over elements.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tenon.dims.symbolic_dim import Dim, product
from tenon.errors import GradientError
from tenon.ops.creation import eye
from tenon.ops.shape import reshape_op
from tenon.tensor import Tensor
from tenon.transforms.differentiate import LeafNest
from tenon.transforms.gradients import (
    Function,
    check_argnums,
    check_callable,
    check_has_derivative,
    flat_arguments,
    grad,
    jvp,
    placed,
    vjp,
)
from tenon.transforms.vmap_interpreter import vmap
from tenon.types import Shape


def jacrev(f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """The function that returns the Jacobian of `f`, computed in reverse mode: cheap for few results.

    A result of shape S and an argument of shape T give a block [*S, *T].  For nests: the nest of the results, each leaf
    replaced by the nest of the argument.  `argnums` and `has_aux` as in `tn.grad`.

    >>> tn.jacrev(lambda x: tn.stack([x[0] * x[1], x[1]]))(tn.tensor([2.0, 3.0]))
    tensor([[3., 2.],
            [0., 1.]])
    """
    return _jacobian(f, argnums, has_aux, lambda inputs, outputs: True)


def jacfwd(f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """The function that returns the Jacobian of `f`, as `jacrev` does, in forward mode: cheap for few arguments."""
    return _jacobian(f, argnums, has_aux, lambda inputs, outputs: False)


def jacobian(f: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """The function that returns the Jacobian of `f`, as `jacrev` does, in the mode that the sizes make cheaper."""
    return _jacobian(f, argnums, has_aux, lambda inputs, outputs: not _more(outputs, inputs))


def hessian(f: Function, argnums: int | Sequence[int] = 0) -> Function:
    """The function that returns the second derivatives of the scalar `f`: blocks [*S, *T] for every pair of leaves.

    >>> tn.hessian(lambda x: x[0] * x[0] * x[1])(tn.tensor([2.0, 3.0]))
    tensor([[6., 4.],
            [4., 0.]])
    """
    return jacrev(grad(f, argnums), argnums)


def hvp(f: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The Hessian of the scalar `f` times `tangents`, without the Hessian: one gradient more.

    >>> tn.hvp(lambda x: (x * x * x).sum(), (tn.tensor([1.0, 2.0]),), (tn.tensor([1.0, 1.0]),))
    (tensor([ 6., 12.]),)
    """
    _, pullback = vjp(grad(f, tuple(range(len(primals)))), *primals)
    return pullback(tuple(tangents))        # the Hessian is symmetric


# ---------------------------------------------------------------- both modes

def _jacobian(f: Function, argnums: int | Sequence[int], has_aux: bool, by_rows: Any) -> Function:
    check_callable("jacobian", f)

    @functools.wraps(f, updated=())
    def jacobian_of(*args: Any, **keywords: Any) -> Any:
        positions = check_argnums(argnums, args)
        primals = tuple(args[k] for k in positions)
        inputs = LeafNest.of(primals)
        for k, argument in zip(positions, flat_arguments(inputs), strict=True):
            check_has_derivative("jacobian", k, argument)

        def of_chosen(*new: Any) -> Any:
            return f(*placed(args, positions, new), **keywords)
        result, pullback, *aux = vjp(of_chosen, *primals, has_aux=has_aux)
        outputs = LeafNest.of(result)
        if not outputs.tensors:
            raise GradientError("jacobian: the function returned nothing with floating elements")
        rows = by_rows([x.size for x in inputs.tensors], [y.size for y in outputs.tensors])
        table = _rows(pullback, inputs, outputs) if rows else _columns(of_chosen, primals, inputs, outputs, has_aux)
        blocks = outputs.fill(_one(inputs.fill(row), argnums) for row in table)
        return (blocks, *aux) if has_aux else blocks
    return jacobian_of


def _rows(pullback: Function, inputs: LeafNest, outputs: LeafNest) -> list[list[Any]]:
    """One block for each result and argument, from one batch of pullbacks."""
    given = vmap(lambda seeds: pullback(outputs.fill(seeds)))(basis(outputs.tensors))
    stacked = [x for x in LeafNest.of(given).leaves if x is not None]
    shapes = [x.shape for x in inputs.tensors]
    columns = [_cut(x, [y.shape for y in outputs.tensors], shape) for x, shape in zip(stacked, shapes, strict=True)]
    return [list(row) for row in zip(*columns, strict=True)]


def _columns(f: Function, primals: Sequence[Any], inputs: LeafNest, outputs: LeafNest,
             has_aux: bool) -> list[list[Any]]:
    """The same from one batch of tangents."""
    def tangent(directions: Any) -> Any:
        return outputs.match(jvp(f, primals, inputs.fill(directions), has_aux=has_aux)[1], "jacobian")
    table = []
    for y, stacked in zip(outputs.tensors, vmap(tangent)(basis(inputs.tensors)), strict=True):
        row = _cut(stacked, [x.shape for x in inputs.tensors], y.shape)
        table.append([_swapped(block, x.ndim) for block, x in zip(row, inputs.tensors, strict=True)])
    return table


def basis(tensors: Sequence[Tensor]) -> list[Tensor]:
    """For every element of these tensors together, tensors of their shapes with one 1 there: stacked along axis 0."""
    total = sum(x.size for x in tensors)
    start: Dim = 0
    found = []
    for x in tensors:
        part = eye(total, dtype=x.dtype, device=x.device)[:, start:start + x.size]
        found.append(reshape_op(part, shape=(total, *x.shape)))
        start = start + x.size
    return found


def _cut(stacked: Any, shapes: Sequence[Shape], rest: Shape) -> list[Any]:
    """[total, *rest] -> [*shape, *rest] for each shape."""
    found, start = [], 0
    for shape in shapes:
        size = product(shape)
        found.append(reshape_op(stacked[start:start + size], shape=(*shape, *rest)))
        start = start + size  # type: ignore[assignment]
    return found


def _swapped(block: Any, count: int) -> Any:
    """The first `count` axes moved behind the others."""
    return block.permute(axes=(*range(count, block.ndim), *range(count))) if count and block.ndim > count else block


def _one(found: tuple[Any, ...], argnums: int | Sequence[int]) -> Any:
    return found[0] if isinstance(argnums, int) else found


def _more(sizes: Sequence[Dim], others: Sequence[Dim]) -> bool:
    """Whether there are so many more of these elements that the other mode pays (forward mode costs about twice)."""
    return bool(sum(sizes) > 2 * sum(others))
