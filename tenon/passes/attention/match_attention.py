"""Nodes -> what of them is attention in plain operators: softmax(q @ k.T * scale, masked) @ v.

Scores are followed from the softmax up to the product that they come from, through what scales, masks, converts or
renames them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph, Input, Literal, Node, Value
from tenon.graph.op import Op
from tenon.graph.partition import has_effect, part
from tenon.ops.activations import softmax
from tenon.ops.arithmetic import add, divide, multiply, subtract
from tenon.ops.comparison import where
from tenon.ops.exponential import exp
from tenon.ops.matrix_products import matmul_op
from tenon.ops.reduction import max_, sum_
from tenon.ops.shape import broadcast_to, cast, permute, reshape_op
from tenon.records import dataclass, field
from tenon.types import Shape, bool_

MAX_PAIRS = 1 << 22     # of a mask that is looked at now
MAX_ADDED = 2           # masks


@dataclass(frozen=True)
class Factor:
    """A matrix, or a stack of such, that a product reads: `base` with its axes in this order."""

    base: Value
    axes: tuple[int, ...]

    @property
    def shape(self) -> Shape:
        return tuple(self.base.shape[k] for k in self.axes)

    @property
    def transposed(self) -> Factor:
        return Factor(self.base, _transposed(self.axes))


@dataclass(frozen=True)
class AttentionMask:
    """What decides on pairs, by broadcasting to `shape`: booleans, which allow or forbid them, or numbers to add.

    `known` are its elements, where they are known now, without leading axes of size 1.
    """

    x: Value
    shape: Shape
    forbids: bool = False
    known: np.ndarray | None = None

    @property
    def is_added(self) -> bool:
        return self.x.dtype is not bool_

    @property
    def allowed(self) -> np.ndarray | None:
        """The pairs that take part, if that is known, and if adding numbers does nothing else."""
        if self.known is None or not self.is_added:
            return None if self.known is None else self.known != self.forbids
        return self.known == 0 if np.isin(self.known, (0, -np.inf)).all() else None


@dataclass(frozen=True)
class PlainAttention:
    """What the scores are made of, and the nodes from the weights to the result."""

    q: Factor
    k: Factor
    v: Factor
    scale: float
    masked: float | None        # the score of pairs that take no part
    masks: tuple[AttentionMask, ...]
    weights: Value              # the result of the softmax
    read: frozenset[Value]      # the same under other names and types, of which the last product reads one
    product: Node


@dataclass
class Scores:
    """A product, and what happens to it, in order."""

    product: Node
    scale: float = 1.0
    masked: float | None = None
    masks: list[AttentionMask] = field(default_factory=list)


def plain_attentions(graph: Graph) -> Iterator[PlainAttention]:
    """All of it in a graph, whoever else reads what is computed on the way."""
    for node in graph.nodes:
        if node.op is matmul_op and node.output.dtype.is_floating:
            found = _ending_in(node, graph)
            if found is not None:
                yield found


def _ending_in(product: Node, graph: Graph) -> PlainAttention | None:
    read = list(names_of(product.inputs[0]))
    weights = read[-1]
    softened = _softened(weights)
    scores = None if softened is None else _scores(softened, graph)
    if scores is None or weights.shape[-1] != scores.product.output.shape[-1]:
        return None
    q, k, v = (factor_of(x) for x in (*scores.product.inputs, product.inputs[1]))
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        q, k, v = (factor_of(x, renamed=False) for x in (*scores.product.inputs, product.inputs[1]))
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2] or (q.shape[-2], k.shape[-1]) != read[0].shape[-2:]:
        return None
    return PlainAttention(q, k.transposed, v, scores.scale, scores.masked, tuple(scores.masks), weights,
                          frozenset(read), product)


def names_of(x: Input) -> Iterator[Value]:
    """The value, and what it is another name, or a conversion, of."""
    while isinstance(x, Value):
        yield x
        x = x.node.inputs[0] if x.node is not None and renames(x.node) else None


def renames(node: Node) -> bool:
    """Whether a node gives the same rows of numbers another type or another shape."""
    x = node.inputs[0] if node.inputs else None
    if node.op is cast:
        return isinstance(x, Value) and x.dtype.is_floating and node.output.dtype.is_floating
    return node.op is reshape_op and isinstance(x, Value) and x.shape[-1:] == node.output.shape[-1:]


def factor_of(x: Input, renamed: bool = True) -> Factor:
    """A factor, behind a transpose, a `renamed` stack, and a permutation."""
    assert isinstance(x, Value)
    axes = tuple(range(x.ndim))
    while True:
        permuted, inner = _of(permute, x), _of(reshape_op, x)
        if permuted is not None and x.node is not None:
            order = x.node.attrs["axes"]
            x, axes = permuted, tuple(order[k] for k in axes)
            if order != _transposed(range(len(order))):
                break
        elif renamed and inner is not None and inner.shape[-2:] == x.shape[-2:]:
            transposed = axes != tuple(range(x.ndim))
            x, axes = inner, tuple(range(inner.ndim))
            axes = _transposed(axes) if transposed else axes
        else:
            break
    return Factor(x, axes)


def _transposed(axes: Iterable[int]) -> tuple[int, ...]:
    *first, rows, columns = axes
    return (*first, columns, rows)


# ---------------------------------------------------------------- softmax, and what it is taken of

def _softened(weights: Value) -> Value | None:
    """What this is the softmax of, along the last axis."""
    whole = _of(softmax, weights)
    if whole is not None and weights.node is not None:
        return whole if weights.node.attrs["axis"] == weights.ndim - 1 else None
    e = _of(divide, weights) or _of(multiply, weights)
    shifted = _of(exp, e)
    if e is None or shifted is None or along_rows(_second(weights), sum_, _of(multiply, weights) is e) is not e:
        return None
    scores = _of(subtract, shifted)
    return scores if scores is not None and along_rows(_second(shifted), max_) is scores else None


def _of(op: Op, x: Input) -> Value | None:
    """The first input of the node that made a value, if it is a value and the node is of this operator."""
    if not isinstance(x, Value) or x.node is None or x.node.op is not op:
        return None
    first = x.node.inputs[0]
    return first if isinstance(first, Value) else None


def _second(x: Value) -> Input:
    return x.node.inputs[1] if x.node is not None else None


def along_rows(x: Input, op: Op, inverse: bool = False) -> Value | None:
    """Of what this is the sum or maximum of every row, or one over it, broadcast to all of it."""
    row = _of(broadcast_to, x)
    row = _one_over(row) if inverse else row
    row = _of(reshape_op, row) or row
    of = _of(op, row)
    if of is None or row is None or row.node is None or not isinstance(x, Value):
        return None
    fits = of.shape == x.shape and row.node.attrs["axis"] == (of.ndim - 1,) and row.dtype is of.dtype
    return of if fits else None


def _one_over(x: Value | None) -> Value | None:
    """The divisor of 1."""
    node = x.node if x is not None else None
    if node is None or node.op is not divide:
        return None
    number, divisor = node.inputs
    is_one = isinstance(number, Literal) and as_float(number) == 1
    return divisor if is_one and isinstance(divisor, Value) else None


def _scores(x: Value, graph: Graph, added: int = 0) -> Scores | None:
    """What happens to a product before the softmax, and before so many additions."""
    node = x.node
    if node is None:
        return None
    if node.op is matmul_op:
        return Scores(node)
    if renames(node):
        inner = node.inputs[0]
        assert isinstance(inner, Value)
        return _scores(inner, graph, added) if node.output.dtype.bits >= inner.dtype.bits else None
    if node.op in (multiply, divide) and (factor := number_beside(node)) is not None:
        return _scaled(_scores(factor[0], graph, added), factor[1])
    if node.op is where:
        return _chosen(node, graph, added)
    return _with_added(node, graph, added) if node.op is add and added < MAX_ADDED else None


def number_beside(node: Node) -> tuple[Value, float] | None:
    """The value that a node multiplies or divides, and by which positive number it multiplies it."""
    x, y = node.inputs
    if node.op is multiply and isinstance(x, Literal):
        x, y = y, x
    if not isinstance(x, Value) or not isinstance(y, Literal):
        return None
    number = as_float(y)
    if node.op is divide:
        number = 1 / number if number else math.inf
    return (x, number) if math.isfinite(number) and number > 0 else None


def as_float(x: Literal) -> float:
    """The number; nan for one that is not real."""
    return math.nan if isinstance(x.value, complex) else float(x.value)


def _scaled(scores: Scores | None, by: float) -> Scores | None:
    if scores is None or any(mask.is_added for mask in scores.masks):
        return None
    scores.scale *= by
    if scores.masked is not None:
        scores.masked *= by
    return scores


def _chosen(node: Node, graph: Graph, added: int) -> Scores | None:
    """where(condition, scores, number), or the other way round."""
    condition, x, y = node.inputs
    forbids = isinstance(x, Literal)
    x, y = (y, x) if forbids else (x, y)
    if not isinstance(condition, Value) or not isinstance(x, Value) or not isinstance(y, Literal):
        return None
    scores, number = _scores(x, graph, added), as_float(y)
    if scores is None or not number < math.inf or scores.masked not in (None, number):
        return None
    scores.masked = number
    scores.masks.append(AttentionMask(narrow(condition), node.output.shape, forbids, _known(condition, graph)))
    return scores


def _with_added(node: Node, graph: Graph, added: int) -> Scores | None:
    """Scores + numbers; minus infinity for pairs that take no part."""
    for x, y in (node.inputs, node.inputs[::-1]):
        if isinstance(x, Value) and isinstance(y, Value):
            scores = _scores(x, graph, added + 1)
            if scores is not None and scores.masked in (None, -math.inf):
                scores.masked = -math.inf
                scores.masks.append(AttentionMask(narrow(y), node.output.shape, known=_known(y, graph)))
                return scores
    return None


def narrow(x: Value) -> Value:
    """The value before it is broadcast."""
    inner = _of(broadcast_to, x)
    return x if inner is None else narrow(inner)


def _known(x: Value, graph: Graph) -> np.ndarray | None:
    """The elements of what depends on nothing, if it is small; leading axes of one element are left out."""
    x = narrow(x)
    nodes = _nodes_behind(x)
    if nodes is None or any(has_effect(node) or node.graphs or not all(map(_is_small, node.outputs)) for node in nodes):
        return None
    (found,) = interpret(part(graph, "mask", (), [x]), [])
    while found.shape[:1] == (1,):
        found = found[0]
    return found


def _nodes_behind(x: Value) -> set[Node] | None:
    """All that make a value; None where a parameter is among what it is made of, as it mostly is."""
    found: set[Node] = set()
    stack = [x]
    while stack:
        made = stack.pop().node
        if made is None:
            return None
        if made not in found:
            found.add(made)
            stack += made.uses()
    return found


def _is_small(x: Value) -> bool:
    return isinstance(x.size, int) and x.size <= MAX_PAIRS
