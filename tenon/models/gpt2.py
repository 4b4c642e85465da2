"""GPT-2: a stack of causal attention and two-layer networks over tokens, with learned positions.

A. Radford et al., "Language models are unsupervised multitask learners", 2019.  Weights have the names of the public
checkpoints (`gpt2`, `gpt2-medium`, ...), whose matrices are [inputs, outputs].
"""

from __future__ import annotations

from typing import Any

from tenon.errors import ShapeError
from tenon.models.kv_cache import Caches, attended, empty_caches, positions
from tenon.models.public_model import PublicModel
from tenon.models.shared_layers import activation, merge_heads, split_heads
from tenon.nn.containers import ModuleList
from tenon.nn.embedding import Embedding
from tenon.nn.module import Module, Parameter
from tenon.nn.normalization import LayerNorm
from tenon.ops.creation import zeros
from tenon.ops.matrix_products import matmul
from tenon.ops.splitting import chunk
from tenon.random import normal
from tenon.records import dataclass


@dataclass(frozen=True)
class GPT2Config:
    """The fields of `config.json` that decide what is computed."""

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    activation_function: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5


class Product(Module):
    """x @ weight + bias, with weight [inputs, outputs]."""

    def __init__(self, inputs: int, outputs: int):
        self.weight, self.bias = Parameter(normal(0.0, 0.02, (inputs, outputs))), Parameter(zeros(outputs))

    def forward(self, x: Any) -> Any:
        return matmul(x, self.weight) + self.bias


class Attention(Module):
    """Causal attention of several heads: [N, T, width] to the same."""

    def __init__(self, config: GPT2Config):
        self.heads = config.n_head
        self.c_attn, self.c_proj = Product(config.n_embd, 3 * config.n_embd), Product(config.n_embd, config.n_embd)

    def forward(self, x: Any, caches: Caches | None, layer: int, at: Any) -> Any:
        q, k, v = (split_heads(part, self.heads) for part in chunk(self.c_attn(x), 3, axis=-1))
        return self.c_proj(merge_heads(attended(q, k, v, caches, layer, at)))


class MLP(Module):
    """Two layers, with an activation between them."""

    def __init__(self, config: GPT2Config):
        wide = config.n_inner or 4 * config.n_embd
        self.c_fc, self.c_proj = Product(config.n_embd, wide), Product(wide, config.n_embd)
        self.act = activation(config.activation_function)

    def forward(self, x: Any) -> Any:
        return self.c_proj(self.act(self.c_fc(x)))


class Block(Module):
    """Attention and a network, each of a normalised input, and added to it."""

    def __init__(self, config: GPT2Config):
        self.ln_1, self.ln_2 = (LayerNorm(config.n_embd, eps=config.layer_norm_epsilon) for _ in range(2))
        self.attn, self.mlp = Attention(config), MLP(config)

    def forward(self, x: Any, caches: Caches | None, layer: int, at: Any) -> Any:
        x = x + self.attn(self.ln_1(x), caches, layer, at)
        return x + self.mlp(self.ln_2(x))


class GPT2(PublicModel):
    """Tokens [N, T] to scores of the next one [N, T, vocabulary].

    >>> model = tn.models.GPT2(vocab_size=11, n_positions=8, n_embd=6, n_layer=2, n_head=2)
    >>> model(tn.tensor([[1, 2, 3]])).shape
    (1, 3, 11)
    """

    Config = GPT2Config
    prefixes = ("transformer.",)
    computed = ("attn.bias", "attn.masked_bias", "lm_head.weight")      # masks; the embedding is the last weight too

    def build(self, config: GPT2Config) -> None:
        self.wte, self.wpe = Embedding(config.vocab_size, config.n_embd), Embedding(config.n_positions, config.n_embd)
        self.h = ModuleList([Block(config) for _ in range(config.n_layer)])
        self.ln_f = LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)

    def new_caches(self, count: int, length: int) -> Caches:
        """Room for the keys and values of `count` texts of `length` tokens."""
        c = self.config
        return empty_caches(c.n_layer, count, c.n_head, length, c.n_embd // c.n_head, self.wte.weight.dtype)

    def forward(self, ids: Any, caches: Caches | None = None, at: Any = None) -> Any:
        """With caches, which are changed, of first tokens; or of one token, the one at place `at`."""
        if isinstance(ids.shape[1], int) and ids.shape[1] > self.config.n_positions:
            raise ShapeError(f"GPT2: {ids.shape[1]} tokens, and there are {self.config.n_positions} positions")
        x = self.wte(ids) + self.wpe(positions(ids.shape[1], at))
        for layer, block in enumerate(self.h):
            x = block(x, caches, layer, at)
        return matmul(self.ln_f(x), self.wte.weight.mT)
