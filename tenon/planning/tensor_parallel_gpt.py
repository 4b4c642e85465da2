"""GPT-2's modules as one rank of a tensor-parallel group has them: its columns, its heads, its rows, and what it says.

Products with columns are followed by products with rows, and a sum over the group (M. Shoeybi et al., "Megatron-LM",
2019).  With `sequence`, what lies between such pairs is split along the tokens: the sum becomes a reduce-scatter, and
an all-gather comes before the next pair (V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer
Models", 2022).
"""

from __future__ import annotations

from typing import Any

from tenon.models.gpt2 import MLP, Attention, Block, GPT2Config, Product
from tenon.models.kv_cache import Caches
from tenon.models.shared_layers import merge_heads, split_heads
from tenon.nn.attention import scaled_dot_product_attention
from tenon.nn.embedding import Embedding
from tenon.nn.module import Module
from tenon.nn.normalization import LayerNorm
from tenon.ops.collectives import all_gather, all_reduce, collective_place, reduce_scatter
from tenon.ops.comparison import logical_and, where
from tenon.ops.creation import arange
from tenon.ops.exponential import exp, log
from tenon.ops.indexing import take_along_axis
from tenon.ops.joining_and_axes import reshape
from tenon.ops.losses import cross_entropy
from tenon.ops.matrix_products import matmul
from tenon.ops.shape import cast
from tenon.ops.splitting import chunk
from tenon.random import dropout
from tenon.records import dataclass
from tenon.transforms.checkpoint import checkpoint
from tenon.transforms.custom_gradient import custom_vjp
from tenon.types import float32

OVER = ("model",)


@dataclass(frozen=True)
class TensorParallel:
    """How the modules of a layer are split: over `parts` ranks, with what is between also split by tokens."""

    parts: int = 1
    sequence: bool = False
    recompute_attention: bool = False
    dropout: float = 0.0

    def tokens(self, tokens: int) -> int:
        """How many of the tokens lie on a rank, between pairs of products."""
        return tokens // self.parts if self.sequence else tokens

    def enter(self, x: Any) -> Any:
        """Into a pair of products: all tokens, whose gradients are summed on the way back."""
        if self.parts == 1:
            return x
        return all_gather(x, axis=1, over=OVER, size=x.shape[1] * self.parts) if self.sequence else _copied(x)

    def leave(self, x: Any) -> Any:
        """Out of a pair: the sum of what the ranks have."""
        if self.parts == 1:
            return x
        return reduce_scatter(x, axis=1, over=OVER, size=x.shape[1] // self.parts) if self.sequence else _summed(x)

    def place(self) -> Any:
        """Which of the ranks this is."""
        return collective_place(over=OVER)

    def rows(self, ids: Any, own: int) -> tuple[Any, Any]:
        """Where tokens are in a rank's `own` rows of a table, and whether they are; None where all are."""
        if self.parts == 1:
            return ids, None
        at = ids - self.place() * own
        return at.clip(0, own - 1), logical_and(at >= 0, at < own)


@custom_vjp
def _copied(x: Any) -> Any:
    return x


@custom_vjp
def _summed(x: Any) -> Any:
    return all_reduce(x, over=OVER)


# What a sum passes on is what each rank gets: its gradient is the same for all of them, and no sum.
_copied.defvjp(lambda x: (x, None), lambda kept, g: (all_reduce(g, over=OVER),))
_summed.defvjp(lambda x: (all_reduce(x, over=OVER), None), lambda kept, g: (g,))


class RankAttention(Attention):
    """The heads of a rank: [N, tokens, width] to the same."""

    def __init__(self, config: GPT2Config, split: TensorParallel):
        width, own = config.n_embd, config.n_embd // split.parts
        self.split, self.heads = split, config.n_head // split.parts
        self.c_attn, self.c_proj = Product(width, 3 * own), Product(own, width)

    def forward(self, x: Any, caches: Caches | None = None, layer: int = 0, at: Any = None) -> Any:
        q, k, v = (split_heads(part, self.heads) for part in chunk(self.c_attn(self.split.enter(x)), 3, axis=-1))
        core = checkpoint(self.core) if self.split.recompute_attention else self.core
        return dropout(_after(self.c_proj, self.split, merge_heads(core(q, k, v))), self.split.dropout)

    def core(self, q: Any, k: Any, v: Any) -> Any:
        """Scores, softmax, and values."""
        return scaled_dot_product_attention(q, k, v, dropout_p=self.split.dropout, is_causal=True)


class RankMLP(MLP):
    """The columns of the first layer and the rows of the second that a rank has."""

    def __init__(self, config: GPT2Config, split: TensorParallel):
        super().__init__(config)
        wide = (config.n_inner or 4 * config.n_embd) // split.parts
        self.split = split
        self.c_fc, self.c_proj = Product(config.n_embd, wide), Product(wide, config.n_embd)

    def forward(self, x: Any) -> Any:
        return dropout(_after(self.c_proj, self.split, self.act(self.c_fc(self.split.enter(x)))), self.split.dropout)


def _after(product: Product, split: TensorParallel, x: Any) -> Any:
    """A product with rows of its weight, summed over the ranks before the bias is added."""
    return split.leave(matmul(x, product.weight)) + product.bias


class RankBlock(Block):
    """A layer, which does with a rank's parts what GPT-2's own does."""

    def __init__(self, config: GPT2Config, split: TensorParallel):
        self.ln_1, self.ln_2 = (LayerNorm(config.n_embd, eps=config.layer_norm_epsilon) for _ in range(2))
        self.attn, self.mlp = RankAttention(config, split), RankMLP(config, split)


class RankEmbedding(Module):
    """The rows of the table that a rank has; for tokens that are others' it adds zeros: [N, tokens] to vectors."""

    def __init__(self, config: GPT2Config, split: TensorParallel):
        self.split = split
        self.wte = Embedding(config.vocab_size // split.parts, config.n_embd)
        self.wpe = Embedding(config.n_positions, config.n_embd)

    def forward(self, ids: Any) -> Any:
        at, own = self.split.rows(ids, self.wte.weight.shape[0])
        x = self.wte(at)
        x = self.split.leave(x if own is None else where(own[..., None], x, 0.0))
        place, here = self.split.place() if self.split.sequence else 0, x.shape[1]
        return x + self.wpe(arange(here) + place * here)


class RankHead(Module):
    """The last normalisation, scores of a rank's part of the vocabulary, and the loss: a maximum, a sum of exponentials
    and the score of the next token go over the group, three numbers a token."""

    def __init__(self, config: GPT2Config, split: TensorParallel):
        self.split = split
        self.ln_f = LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.wte = Embedding(config.vocab_size // split.parts, config.n_embd)

    def forward(self, x: Any, ids: Any) -> Any:
        scores = matmul(self.split.enter(self.ln_f(x)), self.wte.weight.mT)
        if self.split.parts == 1:
            return cross_entropy(reshape(scores, (-1, scores.shape[-1])), reshape(ids, (-1,)))
        scores = cast(scores, dtype=float32 if scores.dtype.bits < 32 else scores.dtype)
        most = all_reduce(scores.detach().max(axis=-1), over=OVER, op="max")
        at, own = self.split.rows(ids, scores.shape[-1])
        wanted = where(own, take_along_axis(scores, at[..., None], -1)[..., 0], 0.0)
        whole = _summed(exp(scores - most[..., None]).sum(axis=-1))
        return (log(whole) + most - _summed(wanted)).mean()
