"""Einstein's summation -> diagonals, sums, and products of pairs by matmul.

    einsum("bij,bjk->bik", x, y)        einsum("...ii", x)        einsum(x, [0, 1], y, [1, 2])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.dims.compare_sizes import is_one
from tenon.dims.symbolic_dim import Dim, product
from tenon.errors import ArgumentError, ShapeError
from tenon.ops.arithmetic import multiply
from tenon.ops.define import function, lift
from tenon.ops.diagonal import diagonal
from tenon.ops.matrix_products import matmul_op
from tenon.ops.reduction import sum_
from tenon.ops.shape import permute, reshape_op

# a letter or a number for each axis; (k,) for the k-th axis from the end that `...` holds
Labels = tuple[Any, ...]
Term = tuple[Any, Labels]           # a tensor and the labels of its axes


@function
def einsum(*operands: Any) -> Any:
    """The sum of products that a formula names, with NumPy's notation.

    >>> x = tn.tensor([[1, 2], [3, 4]])
    >>> tn.einsum("ij,kj->ik", x, x), tn.einsum("ii", x)
    (tensor([[ 5, 11],
            [11, 25]]), tensor(5))
    """
    tensors, inputs, output = _read(operands)
    terms = [_without_repeats(x, labels) for x, labels in zip(tensors, inputs, strict=True)]
    sizes = _sizes(terms)
    if unknown := [label for label in output if label not in sizes]:
        raise ArgumentError(f"einsum: the output names {unknown[0]!r}, which no operand has")
    terms = [_narrow(term, sizes) for term in terms]
    for pair in _order(terms, output):
        rest = [term for k, term in enumerate(terms) if k not in pair]
        kept = {*output, *(label for _, labels in rest for label in labels)}
        terms = [*rest, _product(terms[pair[0]], terms[pair[1]], kept)]
    x, labels = _sum_others(terms[0], set(output))
    return _in_order(x, labels, output)


# ---------------------------------------------------------------- the formula

def _listed(given: Sequence[Any]) -> Sequence[Any]:
    """The operands, which may be given as one list of tensors."""
    one = given[0] if len(given) == 1 else None
    return one if isinstance(one, (list, tuple)) and all(hasattr(x, "shape") for x in one) else given


def _read(operands: Sequence[Any]) -> tuple[list[Any], list[Labels], Labels]:
    """The tensors, the labels of their axes, and the labels of the result."""
    if operands and isinstance(operands[0], str):
        formula, tensors = operands[0].replace(" ", ""), [lift(x) for x in _listed(operands[1:])]
        left, arrow, right = formula.partition("->")
        lists = [_letters(part) for part in left.split(",")]
        output: list[Any] | None = _letters(right) if arrow else None
    else:
        tensors, lists = [lift(x) for x in operands[0:len(operands) - 1:2]], [list(x) for x in operands[1::2]]
        output = list(operands[-1]) if len(operands) % 2 else None
    if len(tensors) != len(lists) or not tensors:
        raise ArgumentError(f"einsum: the formula has {len(lists)} terms, {len(tensors)} operands were given")
    inputs = [_fill(labels, x.ndim, x) for labels, x in zip(lists, tensors, strict=True)]
    dots = max((-label[0] for labels in inputs for label in labels if isinstance(label, tuple)), default=0)
    if output is None:
        count = Counter(label for labels in inputs for label in labels if not isinstance(label, tuple))
        output = [..., *sorted(label for label, times in count.items() if times == 1)]
    elif dots and ... not in output and any(isinstance(label, tuple) for labels in inputs for label in labels):
        raise ArgumentError("einsum: the operands have ... and the output has none")
    filled = _fill(output, len(output) - (... in output) + dots, None)
    if len(set(filled)) != len(filled):
        raise ArgumentError("einsum: the output names an axis twice")
    return tensors, inputs, filled


def _letters(term: str) -> list[Any]:
    """The letters of one term; `...` is one item."""
    before, dots, after = term.partition("...")
    letters = [*before, *([...] if dots else []), *after]
    if bad := [c for c in letters if c is not ... and not c.isalpha()]:
        raise ArgumentError(f"einsum: {bad[0]!r} is no label in {term!r}")
    return letters


def _fill(labels: list[Any], ndim: int, x: Any) -> Labels:
    """One label an axis: `...` stands for the axes that are left, counted from the end."""
    dots = [k for k, label in enumerate(labels) if label is ...]
    missing = ndim - (len(labels) - len(dots))
    if len(dots) > 1 or missing < 0 or (missing and not dots):
        raise ShapeError(f"einsum: {len(labels) - len(dots)} labels for {ndim} axes"
                         + (f" of {x.type}" if x is not None else ""))
    return tuple(new for label in labels for new in ([(k,) for k in range(-missing, 0)] if label is ... else [label]))


def _sizes(terms: Sequence[Term]) -> dict[Any, Dim]:
    sizes: dict[Any, Dim] = {}
    for x, labels in terms:
        for label, size in zip(labels, x.shape, strict=True):
            known = sizes.get(label, 1)
            if known != 1 and size != 1 and known != size:
                raise ShapeError(f"einsum: the axis {label!r} has the sizes {known} and {size}")
            sizes[label] = size if is_one(known) else known
    return sizes


# ---------------------------------------------------------------- single tensors

def _without_repeats(x: Any, labels: Labels) -> Term:
    """A label that occurs twice means the diagonal."""
    for label, times in Counter(labels).items():
        for _ in range(times - 1):
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if x.shape[first] != x.shape[second]:
                raise ShapeError(f"einsum: the axis {label!r} has the sizes {x.shape[first]} and {x.shape[second]}")
            x = diagonal(x, 0, first, second)
            labels = (*(other for k, other in enumerate(labels) if k not in (first, second)), label)
    return x, labels


def _narrow(term: Term, sizes: dict[Any, Dim]) -> Term:
    """Axes of size 1 that are longer elsewhere broadcast: they are left out."""
    x, labels = term
    kept = [k for k, label in enumerate(labels) if not is_one(x.shape[k]) or is_one(sizes[label])]
    if len(kept) == len(labels):
        return term
    return reshape_op(x, shape=tuple(x.shape[k] for k in kept)), tuple(labels[k] for k in kept)


def _sum_others(term: Term, kept: set[Any]) -> Term:
    """The tensor summed over the axes that nothing else names."""
    x, labels = term
    axes = tuple(k for k, label in enumerate(labels) if label not in kept)
    if not axes:
        return term
    return sum_(x, axis=axes, dtype=x.dtype), tuple(label for label in labels if label in kept)


def _in_order(x: Any, labels: Labels, output: Labels) -> Any:
    order = tuple(labels.index(label) for label in output)
    return x if order == tuple(range(len(order))) else permute(x, axes=order)


# ---------------------------------------------------------------- pairs

def _order(terms: Sequence[Term], output: Labels) -> list[tuple[int, int]]:
    """Which two terms to multiply next, until one is left; products go to the end of the list."""
    if len(terms) <= 2:
        return [(0, 1)] * (len(terms) - 1)
    names = {label: k for k, label in enumerate(dict.fromkeys(label for _, labels in terms for label in labels))}
    args: list[Any] = []
    for x, labels in terms:
        shape = [n if isinstance(n, int) else 64 for n in x.shape]
        args += [np.broadcast_to(np.empty(()), shape), [names[label] for label in labels]]
    path = np.einsum_path(*args, [names[label] for label in output if label in names], optimize="greedy")[0][1:]
    return [pair for step in path for pair in _in_pairs(tuple(step), len(terms))]


def _in_pairs(step: tuple[int, ...], count: int) -> list[tuple[int, int]]:
    if len(step) == 2:
        return [(step[0], step[1])]
    return [(0, 1)] * (len(step) - 1)          # all that are left at once


def _product(left: Term, right: Term, kept: set[Any]) -> Term:
    """The product of two tensors, summed over what neither the result nor another term names."""
    (a, ours), (b, theirs) = _sum_others(left, kept | set(right[1])), _sum_others(right, kept | set(left[1]))
    shared = [label for label in ours if label in theirs]
    batch, summed = [label for label in shared if label in kept], [label for label in shared if label not in kept]
    rows, columns = [label for label in ours if label not in shared], [label for label in theirs if label not in shared]
    result = (*batch, *rows, *columns)
    sizes = dict(zip((*ours, *theirs), (*a.shape, *b.shape), strict=True))
    shape = [tuple(sizes[label] for label in group) for group in (batch, rows, columns, summed)]
    a, b = _in_order(a, ours, (*batch, *rows, *summed)), _in_order(b, theirs, (*batch, *summed, *columns))
    if not summed:                              # nothing to sum: an outer product
        a = reshape_op(a, shape=(*shape[0], *shape[1], *[1] * len(columns)))
        b = reshape_op(b, shape=(*shape[0], *[1] * len(rows), *shape[2]))
        return multiply(a, b), result
    many = (shape[0] and (product(shape[0]),)) or ()
    a = reshape_op(a, shape=(*many, product(shape[1]), product(shape[3])))
    b = reshape_op(b, shape=(*many, product(shape[3]), product(shape[2])))
    return reshape_op(matmul_op(a, b), shape=(*shape[0], *shape[1], *shape[2])), result
