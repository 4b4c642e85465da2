"""Transformers: encoder and decoder layers and stacks of them, with PyTorch's names and defaults."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from tenon.errors import ArgumentError
from tenon.nn import init
from tenon.nn.attention import MultiheadAttention
from tenon.nn.containers import ModuleList
from tenon.nn.dropout import Dropout
from tenon.nn.linear import Linear
from tenon.nn.module import Module
from tenon.nn.normalization import LayerNorm
from tenon.ops.activations import gelu, relu
from tenon.ops.creation import full
from tenon.ops.diagonal import triu

__all__ = ["Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
           "TransformerEncoderLayer"]

ACTIVATIONS: dict[str, Callable[..., Any]] = {"relu": relu, "gelu": gelu}


class _Layer(Module):
    """What both kinds of layer share: the feed-forward part and the order of normalisation."""

    def __init__(self, norms: int, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: str | Callable[..., Any] = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = "float32"):
        if isinstance(activation, str) and activation not in ACTIVATIONS:
            raise ArgumentError(f"{type(self).__name__}: activation must be 'relu', 'gelu' or a function, "
                                f"not {activation!r}")
        self.activation = ACTIVATIONS[activation] if isinstance(activation, str) else activation
        self.norm_first = norm_first
        options: Any = {"dropout": dropout, "bias": bias, "batch_first": batch_first, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, **options)
        if norms == 3:
            self.multihead_attn = MultiheadAttention(d_model, nhead, **options)
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype=dtype)
        for k in range(1, norms + 1):
            setattr(self, f"norm{k}", LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype))
        for k in range(1, norms + 1):
            setattr(self, f"dropout{k}", Dropout(dropout))
        self._place(device)

    def _around(self, x: Any, number: int, part: Callable[[Any], Any]) -> Any:
        """x plus what `part` makes of it, normalised before or after."""
        norm, drop = getattr(self, f"norm{number}"), getattr(self, f"dropout{number}")
        return x + drop(part(norm(x))) if self.norm_first else norm(x + drop(part(x)))

    def _feed_forward(self, x: Any) -> Any:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Self-attention, then two linear layers, each with dropout, a residual connection and a layer norm.

    >>> nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(tn.randn(3, 5, 8)).shape
    (3, 5, 8)
    """

    def __init__(self, d_model: int, nhead: int, *values: Any, **options: Any):
        super().__init__(2, d_model, nhead, *values, **options)

    def forward(self, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False) -> Any:
        x = self._around(src, 1, lambda x: self.self_attn(
            x, x, x, attn_mask=src_mask, key_padding_mask=src_key_padding_mask, need_weights=False,
            is_causal=is_causal)[0])
        return self._around(x, 2, self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's result, then two linear layers."""

    def __init__(self, d_model: int, nhead: int, *values: Any, **options: Any):
        super().__init__(3, d_model, nhead, *values, **options)

    def forward(self, tgt: Any, memory: Any, tgt_mask: Any = None, memory_mask: Any = None,
                tgt_key_padding_mask: Any = None, memory_key_padding_mask: Any = None, tgt_is_causal: bool = False,
                memory_is_causal: bool = False) -> Any:
        x = self._around(tgt, 1, lambda x: self.self_attn(
            x, x, x, attn_mask=tgt_mask, key_padding_mask=tgt_key_padding_mask, need_weights=False,
            is_causal=tgt_is_causal)[0])
        x = self._around(x, 2, lambda x: self.multihead_attn(
            x, memory, memory, attn_mask=memory_mask, key_padding_mask=memory_key_padding_mask, need_weights=False,
            is_causal=memory_is_causal)[0])
        return self._around(x, 3, self._feed_forward)


class TransformerEncoder(Module):
    """`num_layers` copies of a layer, and a last norm if given.  There are no nested tensors, whatever is asked for."""

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None,
                 enable_nested_tensor: bool = True, mask_check: bool = True):
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    def forward(self, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False) -> Any:
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """`num_layers` copies of a layer, and a last norm if given."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None):
        self.layers = ModuleList(copy.deepcopy(decoder_layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    def forward(self, tgt: Any, memory: Any, *masks: Any, **options: Any) -> Any:
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, **options)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder (Vaswani et al. 2017)."""

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
                 dim_feedforward: int = 2048, dropout: float = 0.1, layer_norm_eps: float = 1e-5, bias: bool = True,
                 device: Any = None, dtype: Any = "float32", **options: Any):
        options |= {"dim_feedforward": dim_feedforward, "dropout": dropout, "layer_norm_eps": layer_norm_eps,
                    "bias": bias, "dtype": dtype}
        norms = [LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype) for _ in range(2)]
        encoder_layer = TransformerEncoderLayer(d_model, nhead, **options)
        decoder_layer = TransformerDecoderLayer(d_model, nhead, **options)
        self.encoder = TransformerEncoder(encoder_layer, num_encoder_layers, norms[0])
        self.decoder = TransformerDecoder(decoder_layer, num_decoder_layers, norms[1])
        self.d_model, self.nhead, self.batch_first = d_model, nhead, encoder_layer.self_attn.batch_first
        self._reset_parameters()
        self._place(device)

    def _reset_parameters(self) -> None:
        """Draw all weights anew."""
        for p in self.parameters():
            if p.ndim > 1:
                init.xavier_uniform_(p)

    def forward(self, src: Any, tgt: Any, src_mask: Any = None, tgt_mask: Any = None, memory_mask: Any = None,
                src_key_padding_mask: Any = None, tgt_key_padding_mask: Any = None,
                memory_key_padding_mask: Any = None) -> Any:
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)

    @staticmethod
    def generate_square_subsequent_mask(size: int) -> Any:
        """The additive mask that lets position i see positions up to i."""
        return triu(full((size, size), -math.inf), 1)
