"""T5: an encoder of a text and a decoder of another one, with learned biases for the distance between tokens.

C. Raffel et al., "Exploring the limits of transfer learning with a unified text-to-text transformer", 2019.  Weights
have the names of the public checkpoints (`t5-small`, and `google/t5-v1_1-*`, `flan-t5-*`, whose networks are gated).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.models.public_model import PublicModel
from tenon.models.shared_layers import activation, merge_heads, split_heads
from tenon.nn.attention import scaled_dot_product_attention
from tenon.nn.containers import ModuleList
from tenon.nn.embedding import Embedding
from tenon.nn.linear import Linear
from tenon.nn.module import Module
from tenon.nn.normalization import RMSNorm
from tenon.ops.comparison import where
from tenon.ops.creation import full
from tenon.ops.joining_and_axes import concat
from tenon.ops.matrix_products import matmul
from tenon.ops.shape import permute
from tenon.records import dataclass
from tenon.tensor import tensor
from tenon.types import bool_


@dataclass(frozen=True)
class T5Config:
    """The fields of `config.json` that decide what is computed."""

    vocab_size: int = 32128
    d_model: int = 512
    d_kv: int = 64
    d_ff: int = 2048
    num_layers: int = 6
    num_decoder_layers: int | None = None
    num_heads: int = 8
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    layer_norm_epsilon: float = 1e-6
    feed_forward_proj: str = "relu"
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None       # as tie_word_embeddings, unless given
    decoder_start_token_id: int = 0


def buckets(distance: np.ndarray, config: T5Config, both: bool) -> np.ndarray:
    """The number of the bias for each distance, key minus query: exact ones for near tokens, ranges for far ones."""
    count = config.relative_attention_num_buckets // (2 if both else 1)
    first = np.where(distance > 0, count, 0) if both else 0
    away = np.abs(distance) if both else np.maximum(-distance, 0)
    exact = count // 2
    far = np.log(np.maximum(away, 1).astype(np.float32) / exact) / math.log(
        config.relative_attention_max_distance / exact) * (count - exact)
    return np.asarray(first + np.where(away < exact, away, np.minimum(exact + far.astype(np.int64), count - 1)))


class Attention(Module):
    """Attention without a scale; the first one of a stack holds the biases."""

    def __init__(self, config: T5Config, biased: bool):
        inner, self.heads = config.num_heads * config.d_kv, config.num_heads
        self.q, self.k, self.v = (Linear(config.d_model, inner, bias=False) for _ in range(3))
        self.o = Linear(inner, config.d_model, bias=False)
        if biased:
            self.relative_attention_bias = Embedding(config.relative_attention_num_buckets, config.num_heads)

    def forward(self, x: Any, source: Any, bias: Any) -> Any:
        q, k, v = (split_heads(layer(y), self.heads) for layer, y in ((self.q, x), (self.k, source), (self.v, source)))
        return self.o(merge_heads(scaled_dot_product_attention(q, k, v, bias, scale=1.0)))


class Normed(Module):
    """A module of a normalised input, added to it."""

    def __init__(self, config: T5Config, name: str, inner: Module):
        self.name, self.layer_norm = name, RMSNorm(config.d_model, eps=config.layer_norm_epsilon)
        setattr(self, name, inner)

    def forward(self, x: Any, *others: Any) -> Any:
        inner, normed = getattr(self, self.name), self.layer_norm(x)
        if not others:
            return x + inner(normed)
        source, bias = others
        return x + inner(normed, normed if source is None else source, bias)


class FeedForward(Module):
    """A layer, gated by another one where the configuration says so, and one back."""

    def __init__(self, config: T5Config):
        gated = config.feed_forward_proj.startswith("gated-")
        name = config.feed_forward_proj.removeprefix("gated-")
        self.act = activation("gelu_new" if gated and name == "gelu" else name)
        for layer in ("wi_0", "wi_1") if gated else ("wi",):
            setattr(self, layer, Linear(config.d_model, config.d_ff, bias=False))
        self.wo, self.gated = Linear(config.d_ff, config.d_model, bias=False), gated

    def forward(self, x: Any) -> Any:
        return self.wo(self.act(self.wi_0(x)) * self.wi_1(x) if self.gated else self.act(self.wi(x)))


class Block(Module):
    """Attention, in the decoder also to the encoder's text, and a network."""

    def __init__(self, config: T5Config, decodes: bool, first: bool):
        parts = [Normed(config, "SelfAttention", Attention(config, first))]
        parts += [Normed(config, "EncDecAttention", Attention(config, False))] if decodes else []
        self.layer = ModuleList([*parts, Normed(config, "DenseReluDense", FeedForward(config))])

    def forward(self, x: Any, bias: Any, source: Any, source_bias: Any) -> Any:
        x = self.layer[0](x, None, bias)
        if len(self.layer) == 3:
            x = self.layer[1](x, source, source_bias)
        return self.layer[-1](x)


class Stack(Module):
    """All blocks of the encoder, or of the decoder."""

    def __init__(self, config: T5Config, decodes: bool):
        self.config, self.decodes = config, decodes
        count = (config.num_decoder_layers or config.num_layers) if decodes else config.num_layers
        self.block = ModuleList([Block(config, decodes, not k) for k in range(count)])
        self.final_layer_norm = RMSNorm(config.d_model, eps=config.layer_norm_epsilon)

    def forward(self, x: Any, mask: Any, source: Any = None, source_bias: Any = None) -> Any:
        size = x.shape[1]
        distance = np.arange(size)[None, :] - np.arange(size)[:, None]
        bias = self.block[0].layer[0].SelfAttention.relative_attention_bias(
            tensor(buckets(distance, self.config, not self.decodes)))
        bias = permute(bias, (2, 0, 1))[None]
        if self.decodes:
            bias = where(tensor(distance <= 0), bias, -math.inf)
        bias = bias if mask is None else where(mask, bias, -math.inf)
        for block in self.block:
            x = block(x, bias, source, source_bias)
        return self.final_layer_norm(x)


class T5(PublicModel):
    """A text [N, S] and the beginning of its answer [N, T] to scores of the next tokens [N, T, vocabulary].

    >>> model = tn.models.T5(vocab_size=11, d_model=8, d_kv=4, d_ff=12, num_layers=1, num_heads=2)
    >>> model(tn.tensor([[1, 2, 3]]), tn.tensor([[0, 4]])).shape
    (1, 2, 11)
    """

    Config = T5Config
    computed = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")       # both are `shared`

    def build(self, config: T5Config) -> None:
        self.shared = Embedding(config.vocab_size, config.d_model)
        self.encoder, self.decoder = Stack(config, False), Stack(config, True)
        if not config.tie_word_embeddings:
            self.lm_head = Linear(config.d_model, config.vocab_size, bias=False)

    def load_public(self, weights: Any) -> None:
        from tenon.serialization.weight_files import load_weights  # local: a name that stands for a path too
        found = dict(weights if hasattr(weights, "items") else load_weights(weights))
        if self.config.tie_word_embeddings:
            found.pop("lm_head.weight", None)
        super().load_public(found)

    def encode(self, ids: Any, attention_mask: Any = None) -> tuple[Any, Any]:
        """What the decoder attends to, and where it may."""
        mask = None if attention_mask is None else attention_mask.astype(bool_)[:, None, None, :]
        return self.encoder(self.shared(ids), mask), mask

    def decode(self, ids: Any, source: Any, mask: Any) -> Any:
        """Scores of the tokens after those of the answer so far."""
        x = self.decoder(self.shared(ids), None, source, mask)
        c = self.config
        if c.tie_word_embeddings if c.scale_decoder_outputs is None else c.scale_decoder_outputs:
            x = x * c.d_model ** -0.5
        return matmul(x, self.shared.weight.mT) if c.tie_word_embeddings else self.lm_head(x)

    def forward(self, input_ids: Any, decoder_input_ids: Any, attention_mask: Any = None) -> Any:
        return self.decode(decoder_input_ids, *self.encode(input_ids, attention_mask))

    def answer(self, input_ids: Any, max_new_tokens: int = 20, attention_mask: Any = None) -> Any:
        """The likeliest tokens of the answer, [N, 1 + max_new_tokens], the first of which starts it."""
        source, mask = self.encode(input_ids, attention_mask)
        count = max_new_tokens + 1
        ids: Any = full((input_ids.shape[0], count), self.config.decoder_start_token_id, dtype="int64")
        for k in range(1, count):
            best = self.decode(ids[:, :k], source, mask)[:, -1].argmax(axis=-1)
            ids = concat([ids[:, :k], best[:, None], ids[:, k + 1:]], axis=1)
        return ids



