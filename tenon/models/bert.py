"""BERT: attention over tokens in both directions.

J. Devlin et al., "BERT", 2018.  Weights have the names of the public checkpoints (`bert-base-uncased`, ...).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tenon.models.public_model import PublicModel
from tenon.models.shared_layers import activation, merge_heads, split_heads
from tenon.nn.attention import scaled_dot_product_attention
from tenon.nn.containers import ModuleList
from tenon.nn.dropout import Dropout
from tenon.nn.embedding import Embedding
from tenon.nn.linear import Linear
from tenon.nn.module import Module
from tenon.nn.normalization import LayerNorm
from tenon.ops.creation import arange, zeros_like
from tenon.ops.trigonometric import tanh
from tenon.records import dataclass
from tenon.types import bool_


@dataclass(frozen=True)
class BertConfig:
    """The fields of `config.json` that decide what is computed."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12


class BertOutput(NamedTuple):
    """The last layer's [N, T, width], and what a tanh layer makes of the first token's, [N, width]."""

    last_hidden_state: Any
    pooler_output: Any


class Embeddings(Module):
    """Tokens, their places and the text that each belongs to."""

    def __init__(self, config: BertConfig):
        self.word_embeddings = Embedding(config.vocab_size, config.hidden_size, padding_idx=0)
        self.position_embeddings = Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, ids: Any, kinds: Any) -> Any:
        x = self.word_embeddings(ids) + self.token_type_embeddings(kinds)
        return self.dropout(self.LayerNorm(x + self.position_embeddings(arange(ids.shape[1], device=ids.device))))


class SelfAttention(Module):
    """Queries, keys and values, and what the heads make of them."""

    def __init__(self, config: BertConfig):
        self.query, self.key, self.value = (Linear(config.hidden_size, config.hidden_size) for _ in range(3))
        self.heads, self.rate = config.num_attention_heads, config.attention_probs_dropout_prob

    def forward(self, x: Any, mask: Any) -> Any:
        q, k, v = (split_heads(layer(x), self.heads) for layer in (self.query, self.key, self.value))
        return merge_heads(scaled_dot_product_attention(q, k, v, mask, self.rate if self.training else 0.0))


class Added(Module):
    """A layer, added to what the layers before it were given, and normalised."""

    def __init__(self, config: BertConfig, inputs: int):
        self.dense, self.dropout = Linear(inputs, config.hidden_size), Dropout(config.hidden_dropout_prob)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, x: Any, before: Any) -> Any:
        return self.LayerNorm(self.dropout(self.dense(x)) + before)


class Attention(Module):
    """Attention, added to its input."""

    def __init__(self, config: BertConfig):
        self.self, self.output = SelfAttention(config), Added(config, config.hidden_size)

    def forward(self, x: Any, mask: Any) -> Any:
        return self.output(self.self(x, mask), x)


class Wider(Module):
    """A wider layer with an activation."""

    def __init__(self, config: BertConfig):
        self.dense, self.act = Linear(config.hidden_size, config.intermediate_size), activation(config.hidden_act)

    def forward(self, x: Any) -> Any:
        return self.act(self.dense(x))


class Layer(Module):
    """Attention and a two-layer network."""

    def __init__(self, config: BertConfig):
        self.attention, self.intermediate = Attention(config), Wider(config)
        self.output = Added(config, config.intermediate_size)

    def forward(self, x: Any, mask: Any) -> Any:
        x = self.attention(x, mask)
        return self.output(self.intermediate(x), x)


class Encoder(Module):
    """All layers."""

    def __init__(self, config: BertConfig):
        self.layer = ModuleList([Layer(config) for _ in range(config.num_hidden_layers)])

    def forward(self, x: Any, mask: Any) -> Any:
        for layer in self.layer:
            x = layer(x, mask)
        return x


class Pooler(Module):
    """A tanh layer of the first token."""

    def __init__(self, config: BertConfig):
        self.dense = Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: Any) -> Any:
        return tanh(self.dense(x[:, 0]))


class Bert(PublicModel):
    """Tokens [N, T] to a vector each, and one for the text; `attention_mask` [N, T] is 0 where there is no token.

    >>> model = tn.models.Bert(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
    ...                        intermediate_size=12)
    >>> model(tn.tensor([[1, 2, 3]])).last_hidden_state.shape
    (1, 3, 8)
    """

    Config = BertConfig
    prefixes = ("bert.",)
    computed = ("embeddings.position_ids",)

    def build(self, config: BertConfig) -> None:
        self.embeddings, self.encoder, self.pooler = Embeddings(config), Encoder(config), Pooler(config)

    def load_public(self, weights: Any) -> None:
        """Take the weights of a public checkpoint; those of a head for words or sentences (`cls.`) are left out."""
        from tenon.serialization.weight_files import load_weights  # local: a name that stands for a path too
        found = weights if hasattr(weights, "items") else load_weights(weights)
        old = {"gamma": "weight", "beta": "bias"}       # as the first checkpoints call those of LayerNorm
        super().load_public({".".join(old.get(part, part) for part in name.split(".")): value
                             for name, value in found.items() if not name.startswith("cls.")})

    def forward(self, input_ids: Any, attention_mask: Any = None, token_type_ids: Any = None) -> BertOutput:
        mask = None if attention_mask is None else attention_mask.astype(bool_)[:, None, None, :]
        kinds = zeros_like(input_ids) if token_type_ids is None else token_type_ids
        x = self.encoder(self.embeddings(input_ids, kinds), mask)
        return BertOutput(x, self.pooler(x))
