"""CLIP: pictures and texts as vectors that point the same way where they belong together.

A. Radford et al., "Learning transferable visual models from natural language supervision", 2021.  Weights have the
names of the public checkpoints of transformers (`openai/clip-vit-base-patch32`, ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tenon.models.public_model import PublicModel
from tenon.models.shared_layers import activation, merge_heads, split_heads
from tenon.nn.attention import scaled_dot_product_attention
from tenon.nn.containers import ModuleList
from tenon.nn.convolution import Conv2d
from tenon.nn.embedding import Embedding
from tenon.nn.linear import Linear
from tenon.nn.module import Module, Parameter
from tenon.nn.normalization import LayerNorm
from tenon.ops.creation import arange
from tenon.ops.exponential import exp
from tenon.ops.joining_and_axes import concat, reshape, swapaxes
from tenon.ops.matrix_products import matmul
from tenon.ops.normalization import normalize
from tenon.ops.shape import broadcast_to
from tenon.random import normal
from tenon.records import dataclass
from tenon.tensor import tensor

TEXT = {"vocab_size": 49408, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12,
        "num_attention_heads": 8, "max_position_embeddings": 77, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5,
        "eos_token_id": 2}
VISION = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
          "image_size": 224, "patch_size": 32, "num_channels": 3, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}


@dataclass(frozen=True)
class CLIPConfig:
    """The fields of `config.json` that decide what is computed; those of the two parts over their defaults."""

    projection_dim: int = 512
    logit_scale_init_value: float = 2.6592
    text_config: Mapping[str, Any] | None = None
    vision_config: Mapping[str, Any] | None = None


class CLIPOutput(NamedTuple):
    """How well each picture fits each text, and the vectors, of length 1."""

    logits_per_image: Any
    logits_per_text: Any
    image_embeds: Any
    text_embeds: Any


class Attention(Module):
    """Attention of several heads."""

    def __init__(self, config: Mapping[str, Any]):
        width, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.k_proj, self.v_proj, self.q_proj, self.out_proj = (Linear(width, width) for _ in range(4))

    def forward(self, x: Any, causal: bool) -> Any:
        q, k, v = (split_heads(layer(x), self.heads) for layer in (self.q_proj, self.k_proj, self.v_proj))
        return self.out_proj(merge_heads(scaled_dot_product_attention(q, k, v, is_causal=causal)))


class MLP(Module):
    """Two layers with an activation between them."""

    def __init__(self, config: Mapping[str, Any]):
        sizes = config["hidden_size"], config["intermediate_size"]
        self.fc1, self.fc2, self.act = Linear(*sizes), Linear(*sizes[::-1]), activation(config["hidden_act"])

    def forward(self, x: Any) -> Any:
        return self.fc2(self.act(self.fc1(x)))


class Layer(Module):
    """Attention and a network, each of a normalised input, and added to it."""

    def __init__(self, config: Mapping[str, Any]):
        self.self_attn, self.mlp = Attention(config), MLP(config)
        self.layer_norm1, self.layer_norm2 = (LayerNorm(config["hidden_size"], eps=config["layer_norm_eps"])
                                              for _ in range(2))

    def forward(self, x: Any, causal: bool) -> Any:
        x = x + self.self_attn(self.layer_norm1(x), causal)
        return x + self.mlp(self.layer_norm2(x))


class Encoder(Module):
    """All layers."""

    def __init__(self, config: Mapping[str, Any]):
        self.layers = ModuleList([Layer(config) for _ in range(config["num_hidden_layers"])])

    def forward(self, x: Any, causal: bool) -> Any:
        for layer in self.layers:
            x = layer(x, causal)
        return x


class TextEmbeddings(Module):
    """Tokens and their places."""

    def __init__(self, config: Mapping[str, Any]):
        self.token_embedding = Embedding(config["vocab_size"], config["hidden_size"])
        self.position_embedding = Embedding(config["max_position_embeddings"], config["hidden_size"])

    def forward(self, ids: Any) -> Any:
        return self.token_embedding(ids) + self.position_embedding(arange(ids.shape[1], device=ids.device))


class TextModel(Module):
    """Texts [N, T] to a vector each: that of the token that ends it."""

    def __init__(self, config: Mapping[str, Any]):
        self.embeddings, self.encoder, self.end = TextEmbeddings(config), Encoder(config), config["eos_token_id"]
        self.final_layer_norm = LayerNorm(config["hidden_size"], eps=config["layer_norm_eps"])

    def forward(self, ids: Any) -> Any:
        x = self.final_layer_norm(self.encoder(self.embeddings(ids), True))
        # the first checkpoints say 2, and end texts with the token of the highest number
        ends = ids.argmax(axis=-1) if self.end == 2 else (ids == self.end).astype("int32").argmax(axis=-1)
        return x[arange(ids.shape[0], device=ids.device), ends]


class VisionEmbeddings(Module):
    """A picture's patches and their places, after a token for all."""

    def __init__(self, config: Mapping[str, Any]):
        width, patch = config["hidden_size"], config["patch_size"]
        self.class_embedding = Parameter(normal(0.0, 0.02, (width,)))
        self.patch_embedding = Conv2d(config["num_channels"], width, patch, patch, bias=False)
        self.position_embedding = Embedding((config["image_size"] // patch) ** 2 + 1, width)

    def forward(self, pixels: Any) -> Any:
        x = self.patch_embedding(pixels)
        x = swapaxes(reshape(x, (x.shape[0], x.shape[1], -1)), 1, 2)
        first = broadcast_to(self.class_embedding, (x.shape[0], 1, x.shape[2]))
        return concat([first, x], axis=1) + self.position_embedding.weight


class VisionModel(Module):
    """Pictures [N, 3, H, W] to a vector each."""

    def __init__(self, config: Mapping[str, Any]):
        self.embeddings, self.encoder = VisionEmbeddings(config), Encoder(config)
        self.pre_layrnorm, self.post_layernorm = (LayerNorm(config["hidden_size"], eps=config["layer_norm_eps"])
                                                  for _ in range(2))       # so misspelt in all checkpoints

    def forward(self, pixels: Any) -> Any:
        x = self.encoder(self.pre_layrnorm(self.embeddings(pixels)), False)
        return self.post_layernorm(x[:, 0])


class CLIP(PublicModel):
    """Texts [M, T] and pictures [N, 3, H, W] to how well each fits each.

    >>> model = tn.models.CLIP(
    ...     projection_dim=4, text_config={"vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 1},
    ...     vision_config={"hidden_size": 24, "num_hidden_layers": 1, "image_size": 8, "patch_size": 4})
    >>> model(tn.tensor([[1, 2, 10]]), tn.zeros(2, 3, 8, 8)).logits_per_image.shape
    (2, 1)
    """

    Config = CLIPConfig
    computed = ("embeddings.position_ids",)

    def build(self, config: CLIPConfig) -> None:
        text, vision = {**TEXT, **(config.text_config or {})}, {**VISION, **(config.vision_config or {})}
        self.text_model, self.vision_model = TextModel(text), VisionModel(vision)
        self.visual_projection = Linear(vision["hidden_size"], config.projection_dim, bias=False)
        self.text_projection = Linear(text["hidden_size"], config.projection_dim, bias=False)
        self.logit_scale = Parameter(tensor(config.logit_scale_init_value))

    def image_vectors(self, pixels: Any) -> Any:
        """[N, projection_dim], of length 1."""
        return normalize(self.visual_projection(self.vision_model(pixels)), axis=-1)

    def text_vectors(self, ids: Any) -> Any:
        """[N, projection_dim], of length 1."""
        return normalize(self.text_projection(self.text_model(ids)), axis=-1)

    def forward(self, input_ids: Any, pixel_values: Any) -> CLIPOutput:
        images, texts = self.image_vectors(pixel_values), self.text_vectors(input_ids)
        fits = matmul(texts, images.mT) * exp(self.logit_scale)
        return CLIPOutput(fits.mT, fits, images, texts)
