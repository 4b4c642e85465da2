"""Whisper: speech to text; an encoder of a spectrogram and a decoder of tokens.

A. Radford et al., "Robust speech recognition via large-scale weak supervision", 2022.  Weights have the names of the
public checkpoints (`openai/whisper-tiny`, ...).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.models.kv_cache import Caches, attended, empty_caches, positions
from tenon.models.public_model import PublicModel
from tenon.models.shared_layers import activation, merge_heads, split_heads
from tenon.nn.attention import scaled_dot_product_attention
from tenon.nn.containers import ModuleList
from tenon.nn.convolution import Conv1d
from tenon.nn.embedding import Embedding
from tenon.nn.linear import Linear
from tenon.nn.module import Module
from tenon.nn.normalization import LayerNorm
from tenon.ops.activations import gelu
from tenon.ops.joining_and_axes import swapaxes
from tenon.ops.matrix_products import matmul
from tenon.records import dataclass
from tenon.tensor import tensor


@dataclass(frozen=True)
class WhisperConfig:
    """The fields of `config.json` that decide what is computed."""

    vocab_size: int = 51865
    num_mel_bins: int = 80
    d_model: int = 384
    encoder_layers: int = 4
    encoder_attention_heads: int = 6
    encoder_ffn_dim: int = 1536
    decoder_layers: int = 4
    decoder_attention_heads: int = 6
    decoder_ffn_dim: int = 1536
    activation_function: str = "gelu"
    max_source_positions: int = 1500
    max_target_positions: int = 448


def sinusoids(length: int, width: int) -> np.ndarray:
    """Sines and cosines of each place, f32[length, width]."""
    turns = np.exp(-math.log(10000) / (width // 2 - 1) * np.arange(width // 2))
    angles = np.arange(length)[:, None] * turns
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


class Attention(Module):
    """Attention of several heads; keys have no bias."""

    def __init__(self, width: int, heads: int):
        self.heads, self.size = heads, width // heads
        self.k_proj = Linear(width, width, bias=False)
        self.v_proj, self.q_proj, self.out_proj = (Linear(width, width) for _ in range(3))

    def forward(self, x: Any, source: Any = None) -> Any:
        """To all of the source, which is x itself unless given."""
        source = x if source is None else source
        q, k, v = (split_heads(part, self.heads) for part in (self.q_proj(x), self.k_proj(source), self.v_proj(source)))
        return self.out_proj(merge_heads(scaled_dot_product_attention(q, k, v)))

    def causal(self, x: Any, caches: Caches | None, layer: int, at: Any) -> Any:
        """To tokens before."""
        q, k, v = (split_heads(part, self.heads) for part in (self.q_proj(x), self.k_proj(x), self.v_proj(x)))
        return self.out_proj(merge_heads(attended(q, k, v, caches, layer, at)))


class Layer(Module):
    """Attention, in the decoder also to the sound, and a network, each of a normalised input, and added to it."""

    def __init__(self, config: WhisperConfig, decodes: bool):
        width = config.d_model
        heads, wide = (config.decoder_attention_heads, config.decoder_ffn_dim) if decodes else (
            config.encoder_attention_heads, config.encoder_ffn_dim)
        self.self_attn, self.self_attn_layer_norm = Attention(width, heads), LayerNorm(width)
        if decodes:
            self.encoder_attn, self.encoder_attn_layer_norm = Attention(width, heads), LayerNorm(width)
        self.fc1, self.fc2, self.final_layer_norm = Linear(width, wide), Linear(wide, width), LayerNorm(width)
        self.act = activation(config.activation_function)

    def encode(self, x: Any) -> Any:
        """A layer of the encoder."""
        return self._network(x + self.self_attn(self.self_attn_layer_norm(x)))

    def decode(self, x: Any, source: Any, caches: Caches | None, layer: int, at: Any) -> Any:
        """A layer of the decoder."""
        x = x + self.self_attn.causal(self.self_attn_layer_norm(x), caches, layer, at)
        return self._network(x + self.encoder_attn(self.encoder_attn_layer_norm(x), source))

    def _network(self, x: Any) -> Any:
        return x + self.fc2(self.act(self.fc1(self.final_layer_norm(x))))


class Encoder(Module):
    """A spectrogram [N, bins, 2 T] to [N, T, width]."""

    def __init__(self, config: WhisperConfig):
        width = config.d_model
        self.conv1, self.conv2 = Conv1d(config.num_mel_bins, width, 3, padding=1), Conv1d(width, width, 3, 2, 1)
        self.embed_positions = Embedding.from_pretrained(tensor(sinusoids(config.max_source_positions, width)))
        self.layers = ModuleList([Layer(config, False) for _ in range(config.encoder_layers)])
        self.layer_norm = LayerNorm(width)

    def forward(self, features: Any) -> Any:
        x = swapaxes(gelu(self.conv2(gelu(self.conv1(features)))), 1, 2)
        x = x + self.embed_positions.weight[:x.shape[1]]
        for layer in self.layers:
            x = layer.encode(x)
        return self.layer_norm(x)


class Decoder(Module):
    """Tokens [N, T], of a sound, to [N, T, width]."""

    def __init__(self, config: WhisperConfig):
        self.embed_tokens = Embedding(config.vocab_size, config.d_model)
        self.embed_positions = Embedding(config.max_target_positions, config.d_model)
        self.layers = ModuleList([Layer(config, True) for _ in range(config.decoder_layers)])
        self.layer_norm = LayerNorm(config.d_model)

    def forward(self, ids: Any, source: Any, caches: Caches | None = None, at: Any = None) -> Any:
        x = self.embed_tokens(ids) + self.embed_positions(positions(ids.shape[1], at))
        for number, layer in enumerate(self.layers):
            x = layer.decode(x, source, caches, number, at)
        return self.layer_norm(x)


class Whisper(PublicModel):
    """A log-mel spectrogram [N, bins, 2 T] and the beginning of its text [N, L] to scores [N, L, vocabulary].

    >>> model = tn.models.Whisper(vocab_size=11, num_mel_bins=4, d_model=8, encoder_layers=1, decoder_layers=1,
    ...                           encoder_attention_heads=2, decoder_attention_heads=2)
    >>> model(tn.zeros(1, 4, 10), tn.tensor([[1, 2, 3]])).shape
    (1, 3, 11)
    """

    Config = WhisperConfig
    prefixes = ("model.",)
    computed = ("proj_out.weight",)         # the embedding

    def build(self, config: WhisperConfig) -> None:
        self.encoder, self.decoder = Encoder(config), Decoder(config)

    def forward(self, input_features: Any, decoder_input_ids: Any) -> Any:
        return self.scores(self.decoder(decoder_input_ids, self.encoder(input_features)))

    def scores(self, x: Any) -> Any:
        """Scores of the next tokens."""
        return matmul(x, self.decoder.embed_tokens.weight.mT)

    def listening(self, input_features: Any) -> Listening:
        """A decoder of this sound, for `tn.models.generate`."""
        return Listening(self, self.encoder(input_features))


class Listening(Module):
    """The decoder of one sound: tokens [N, T] to scores of the next ones."""

    def __init__(self, model: Whisper, source: Any):
        self.model = model
        self.register_buffer("source", source)

    def new_caches(self, count: int, length: int) -> Caches:
        """Room for the keys and values of `count` texts of `length` tokens."""
        c = self.model.config
        heads = c.decoder_attention_heads
        return empty_caches(c.decoder_layers, count, heads, length, c.d_model // heads, self.source.dtype)

    def forward(self, ids: Any, caches: Caches | None = None, at: Any = None) -> Any:
        return self.model.scores(self.model.decoder(ids, self.source, caches, at))
