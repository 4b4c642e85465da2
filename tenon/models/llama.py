"""Llama: a causal decoder with rotated queries and keys, shared keys and values, and gated networks.

H. Touvron et al., "LLaMA", 2023; J. Su et al., "RoFormer", 2021; J. Ainslie et al., "GQA", 2023.  Weights have the
names of the public checkpoints of Llama, Mistral, TinyLlama, SmolLM and, with `qkv_bias`, Qwen2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tenon.models.kv_cache import Caches, attended, empty_caches, positions
from tenon.models.public_model import PublicModel
from tenon.models.shared_layers import activation, merge_heads, split_heads
from tenon.nn.containers import ModuleList
from tenon.nn.embedding import Embedding
from tenon.nn.linear import Linear
from tenon.nn.module import Module
from tenon.nn.normalization import RMSNorm
from tenon.ops.joining_and_axes import concat
from tenon.ops.matrix_products import matmul
from tenon.ops.trigonometric import cos, sin
from tenon.records import dataclass
from tenon.tensor import tensor


@dataclass(frozen=True)
class LlamaConfig:
    """The fields of `config.json` that decide what is computed."""

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: Mapping[str, Any] | None = None
    rope_parameters: Mapping[str, Any] | None = None        # newer files have both of the above here
    attention_bias: bool = False
    mlp_bias: bool = False
    qkv_bias: bool = False                                  # Qwen2
    tie_word_embeddings: bool = False

    def head_size(self) -> int:
        """The numbers of a head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    def kv_heads(self) -> int:
        """How many heads of keys and values there are."""
        return self.num_key_value_heads or self.num_attention_heads


def frequencies(config: LlamaConfig) -> np.ndarray:
    """How far a pair of numbers turns with each place, f64[size / 2]; Llama 3 slows slow ones down."""
    rope = {"rope_theta": config.rope_theta, **(config.rope_scaling or {}), **(config.rope_parameters or {})}
    size = config.head_size()
    turns: np.ndarray = np.asarray(rope["rope_theta"] ** -(np.arange(0, size, 2) / size), np.float64)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "linear":
        return np.asarray(turns / rope["factor"])
    if kind != "llama3":
        return turns
    length = rope["original_max_position_embeddings"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    share = np.clip((length * turns / (2 * math.pi) - low) / (high - low), 0, 1)
    return np.asarray(turns * (share + (1 - share) / rope["factor"]))


def rotated(x: Any, cosines: Any, sines: Any) -> Any:
    """Pairs of numbers, half a head apart, turned by the angle of their place."""
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return concat([first * cosines - second * sines, second * cosines + first * sines], axis=-1)


class Attention(Module):
    """Causal attention in which several heads of queries share one of keys and values."""

    def __init__(self, config: LlamaConfig):
        size, self.heads, self.kv_heads = config.head_size(), config.num_attention_heads, config.kv_heads()
        biased = config.attention_bias or config.qkv_bias
        self.q_proj = Linear(config.hidden_size, self.heads * size, bias=biased)
        self.k_proj, self.v_proj = (Linear(config.hidden_size, self.kv_heads * size, bias=biased) for _ in range(2))
        self.o_proj = Linear(self.heads * size, config.hidden_size, bias=config.attention_bias)

    def forward(self, x: Any, angles: tuple[Any, Any], caches: Caches | None, layer: int, at: Any) -> Any:
        q = rotated(split_heads(self.q_proj(x), self.heads), *angles)
        k, v = rotated(split_heads(self.k_proj(x), self.kv_heads), *angles), split_heads(self.v_proj(x), self.kv_heads)
        return self.o_proj(merge_heads(attended(q, k, v, caches, layer, at, self.heads != self.kv_heads)))


class MLP(Module):
    """A layer, gated by another one, and one back."""

    def __init__(self, config: LlamaConfig):
        sizes = config.hidden_size, config.intermediate_size
        self.gate_proj, self.up_proj = (Linear(*sizes, bias=config.mlp_bias) for _ in range(2))
        self.down_proj = Linear(*sizes[::-1], bias=config.mlp_bias)
        self.act_fn = activation(config.hidden_act)

    def forward(self, x: Any) -> Any:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Layer(Module):
    """Attention and a network, each of a normalised input, and added to it."""

    def __init__(self, config: LlamaConfig):
        self.self_attn, self.mlp = Attention(config), MLP(config)
        self.input_layernorm, self.post_attention_layernorm = (
            RMSNorm(config.hidden_size, eps=config.rms_norm_eps) for _ in range(2))

    def forward(self, x: Any, angles: tuple[Any, Any], caches: Caches | None, layer: int, at: Any) -> Any:
        x = x + self.self_attn(self.input_layernorm(x), angles, caches, layer, at)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(PublicModel):
    """Tokens [N, T] to scores of the next one [N, T, vocabulary].

    >>> model = tn.models.Llama(vocab_size=11, hidden_size=8, intermediate_size=12, num_hidden_layers=1,
    ...                         num_attention_heads=2, num_key_value_heads=1)
    >>> model(tn.tensor([[1, 2, 3]])).shape
    (1, 3, 11)
    """

    Config = LlamaConfig
    prefixes = ("model.",)
    computed = ("rotary_emb.inv_freq",)

    def build(self, config: LlamaConfig) -> None:
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size)
        self.layers = ModuleList([Layer(config) for _ in range(config.num_hidden_layers)])
        self.norm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        if not config.tie_word_embeddings:
            self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        self.turns = frequencies(config)

    def load_public(self, weights: Any) -> None:
        if self.config.tie_word_embeddings and isinstance(weights, Mapping):
            weights = {name: value for name, value in weights.items() if name != "lm_head.weight"}
        super().load_public(weights)

    def new_caches(self, count: int, length: int) -> Caches:
        """Room for the keys and values of `count` texts of `length` tokens."""
        c = self.config
        held = self.embed_tokens.weight.dtype
        return empty_caches(c.num_hidden_layers, count, c.kv_heads(), length, c.head_size(), held)

    def forward(self, ids: Any, caches: Caches | None = None, at: Any = None) -> Any:
        """With caches, which are changed, of first tokens; or of one token, the one at place `at`."""
        x = self.embed_tokens(ids)
        places = positions(ids.shape[1], at).astype("float64")[:, None] * tensor(self.turns)
        angles = cos(places).astype(x.dtype), sin(places).astype(x.dtype)
        for number, layer in enumerate(self.layers):
            x = layer(x, angles, caches, number, at)
        x = self.norm(x)
        return matmul(x, self.embed_tokens.weight.mT) if self.config.tie_word_embeddings else self.lm_head(x)
