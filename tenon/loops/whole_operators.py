"""Which operators reach the loops whole: those that a statement of the loop IR stands for.

Apart from that statement, since it is asked of every node, and a program from the disk needs no loops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tenon.dims.symbolic_dim import product
from tenon.graph.ir import Node, Value
from tenon.ops.attention import attention, attention_gradient
from tenon.types import Shape

WIDEST = 512            # elements of a query, key or value that a block's memory is made for
SINGLE_QUERIES = 4      # up to so many, each goes through keys and values by itself
MAX_VECTOR_QUERIES = 8  # up to so many, scores are products of vectors with matrices, read in place
MAX_PLAIN_KEY_ELEMENTS = 4096   # with fewer elements of keys, plain operators are as fast, in the kernel of a loop
MAX_PLAIN_PAIRS = 1 << 14   # up to so many pairs, storing scores is cheap; a quarter where it is causal
MAX_PLAIN_HEADS = 4     # with fewer heads, whole attention has too few threads
MIN_WHOLE_PAIRS = 1 << 20   # from so many pairs on, scores are too many to be stored


def is_attention(node: Node) -> bool:
    """Whether a statement computes the node: floating numbers, in vectors whose length is known, and enough of them."""
    if node.op is not attention and node.op is not attention_gradient:
        return False
    q, k, v, *_ = tensors = attended(node)
    if not _is_skipped(node):
        return False
    numbers = all(x is None or x.dtype.is_floating or x is tensors[3] for x in tensors)
    known = all(isinstance(n, int) and 1 <= n <= WIDEST for n in (q.shape[-1], v.shape[-1]))
    empty = any(isinstance(n, int) and n == 0 for x in (q, k, v) for n in x.shape)
    return numbers and known and not empty and _pays(node, q, k)


def _is_skipped(node: Node) -> bool:
    """Whether pairs that a causal mask leaves out need not be looked at: their weights are 0, in every row."""
    masked, mask = node.attrs["masked"], node.inputs[-1]
    if masked is None or not node.attrs["is_causal"]:
        return True
    return bool(masked == -math.inf) and (mask is None or node.op is attention)


def _pays(node: Node, q: Value, k: Value) -> bool:
    """Whether going through blocks of scores takes less time than storing all of them; sizes are as far as known."""
    rows, pairs = q.shape[-2], q.shape[-2] * k.shape[-2]
    heads = product(batch_of(node))
    if isinstance(rows, int) and rows <= SINGLE_QUERIES:
        few = isinstance(heads, int) and heads * rows < MAX_PLAIN_HEADS
        small = isinstance(k.size, int) and k.size < MAX_PLAIN_KEY_ELEMENTS
        return node.op is attention and not few and not small
    if isinstance(rows, int) and rows <= MAX_VECTOR_QUERIES:
        return False
    if not isinstance(pairs, int) or pairs >= MIN_WHOLE_PAIRS:
        return True
    if node.op is attention_gradient and isinstance(heads, int) and heads < MAX_PLAIN_HEADS:
        return False
    return pairs >= (MAX_PLAIN_PAIRS // 4 if node.attrs["is_causal"] else MAX_PLAIN_PAIRS)


def attended(node: Node) -> Sequence[Value]:
    """Queries, keys, values and the mask, which may be None."""
    return node.inputs[3:] if node.op is attention_gradient else node.inputs  # type: ignore[return-value]


def batch_of(node: Node) -> Shape:
    """The sizes of the stack of heads."""
    return node.outputs[1].shape[:-1] if node.op is attention else node.outputs[0].shape[:-2]
