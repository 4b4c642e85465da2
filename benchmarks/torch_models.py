"""Architectures of transformers, timm and diffusers, tiny and with random weights, run by Tenon and by PyTorch itself.

    python benchmarks/torch_models.py                 all of them, a line each
    python benchmarks/torch_models.py bert timm:      those with such names

A line says whether inference and two steps of training are equal (results to 1e-4 of the largest element, gradients to
1e-3), what PyTorch had to run, and how long the first inference and the first step took.  No model is downloaded.
Rounding may move an element across the kink of a ReLU, in PyTorch as well.  So where training differs, double precision
decides: there results and gradients have to be equal to 1e-8.
"""

from __future__ import annotations

import copy
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

import tenon.torch

Case = Callable[[], tuple[torch.nn.Module, dict[str, Any]]]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37, "vocab_size": 99,
         "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
IMAGE = {"image_size": 32, "patch_size": 8, "num_channels": 3}


def words(n: int = 2, length: int = 12) -> torch.Tensor:
    return torch.randint(3, 99, (n, length))


def text(kind: str, head: str = "", **options: Any) -> Case:
    """A model of transformers that reads words."""
    def make() -> tuple[torch.nn.Module, dict[str, Any]]:
        import transformers
        config = transformers.AutoConfig.for_model(kind, **{**SIZES, **options})
        model = getattr(transformers, f"AutoModel{head}").from_config(config)
        inputs = {"input_ids": words(), "use_cache": False} if kind not in NO_CACHE else {"input_ids": words()}
        if getattr(config, "is_encoder_decoder", False):
            inputs["decoder_input_ids"] = words(2, 7)
        if head in ("ForCausalLM", "ForMaskedLM"):
            inputs["labels"] = inputs["input_ids"].clone()
        return model, inputs
    return make


NO_CACHE = {"distilbert", "albert", "mpnet", "deberta-v2", "electra", "fnet", "nystromformer", "xlnet", "funnel",
            "squeezebert", "mobilebert", "flaubert", "deberta", "convbert", "layoutlm", "esm", "modernbert", "mra"}


def image(kind: str, size: int = 32, **options: Any) -> Case:
    """A model of transformers that sees images."""
    def make() -> tuple[torch.nn.Module, dict[str, Any]]:
        import transformers
        given = {k: v for k, v in {**SIZES, **IMAGE}.items() if k not in ("vocab_size", "max_position_embeddings",
                 "pad_token_id", "bos_token_id", "eos_token_id")}
        config = transformers.AutoConfig.for_model(kind, **{**given, **options})
        return transformers.AutoModel.from_config(config), {"pixel_values": torch.randn(2, 3, size, size)}
    return make


def of_timm(name: str, size: int = 64, **options: Any) -> Case:
    def make() -> tuple[torch.nn.Module, dict[str, Any]]:
        import timm
        return timm.create_model(name, pretrained=False, num_classes=7, **options), {"x": torch.randn(2, 3, size, size)}
    return make


def of_diffusers(name: str, inputs: Callable[[], dict[str, Any]], **options: Any) -> Case:
    def make() -> tuple[torch.nn.Module, dict[str, Any]]:
        import diffusers
        return getattr(diffusers, name)(**options), inputs()
    return make


def whisper() -> tuple[torch.nn.Module, dict[str, Any]]:
    import transformers
    config = transformers.WhisperConfig(vocab_size=99, num_mel_bins=8, encoder_layers=2, decoder_layers=2, d_model=32,
                                        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=37,
                                        decoder_ffn_dim=37, max_source_positions=16, max_target_positions=20,
                                        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    return transformers.WhisperModel(config), {"input_features": torch.randn(2, 8, 32),
                                               "decoder_input_ids": words(2, 7), "use_cache": False}


def clip() -> tuple[torch.nn.Module, dict[str, Any]]:
    import transformers
    small = {"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4,
             "projection_dim": 16}
    config = transformers.CLIPConfig(text_config={**small, "vocab_size": 99, "max_position_embeddings": 20,
                                                  "eos_token_id": 2},
                                     vision_config={**small, "image_size": 32, "patch_size": 8}, projection_dim=16)
    return transformers.CLIPModel(config), {"input_ids": words(), "pixel_values": torch.randn(2, 3, 32, 32)}


def wav2vec2() -> tuple[torch.nn.Module, dict[str, Any]]:
    import transformers
    config = transformers.Wav2Vec2Config(
        **{k: v for k, v in SIZES.items() if k != "max_position_embeddings"}, conv_dim=(16, 16), conv_stride=(4, 2),
        conv_kernel=(8, 4), num_feat_extract_layers=2, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2,
        apply_spec_augment=False, layerdrop=0.0)
    return transformers.Wav2Vec2Model(config), {"input_values": torch.randn(2, 400)}


class Ranking(torch.nn.Module):
    """DLRM: embeddings of many kinds, their products in pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = torch.nn.ModuleList(torch.nn.EmbeddingBag(20, 8, mode="sum") for _ in range(3))
        self.bottom = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
        self.top = torch.nn.Sequential(torch.nn.Linear(14, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))

    def forward(self, x: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        first = self.bottom(x)
        rows = torch.stack([first, *(bag(kinds[k]) for k, bag in enumerate(self.bags))], 1)
        pairs = rows @ rows.mT
        i, j = torch.tril_indices(4, 4, -1)
        return self.top(torch.cat([first, pairs[:, i, j]], 1))


def ranking() -> tuple[torch.nn.Module, dict[str, Any]]:
    return Ranking(), {"x": torch.randn(6, 5), "kinds": torch.randint(0, 20, (3, 6, 4))}


class Recurrent(torch.nn.Module):
    def __init__(self, kind: type[torch.nn.Module]):
        super().__init__()
        self.rnn, self.out = kind(6, 8, 2, batch_first=True), torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.rnn(x)[0])


def recurrent(kind: type[torch.nn.Module]) -> Case:
    return lambda: (Recurrent(kind), {"x": torch.randn(3, 5, 6)})


UNET = {"sample_size": 16, "block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4}
TEXTS = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
         "decoder_attention_heads": 4, "encoder_ffn_dim": 37, "decoder_ffn_dim": 37, "decoder_start_token_id": 1}
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
GQA = {"num_key_value_heads": 2, "head_dim": 8}

MODELS: dict[str, Case] = {
    "bert": text("bert", "ForMaskedLM"), "roberta": text("roberta"), "electra": text("electra", embedding_size=32),
    "distilbert": text("distilbert", dim=32, n_layers=2, n_heads=4, hidden_dim=37),
    "albert": text("albert", embedding_size=16), "mpnet": text("mpnet"), "deberta-v2": text("deberta-v2"),
    "modernbert": text("modernbert", cls_token_id=1, sep_token_id=2), "esm": text("esm", mask_token_id=3),
    "gpt2": text("gpt2", "ForCausalLM", **GPT), "gpt_neo": text("gpt_neo", num_layers=2, num_heads=4,
                                                               attention_types=[[["global", "local"], 1]]),
    "gpt_neox": text("gpt_neox", "ForCausalLM"), "gptj": text("gptj", rotary_dim=4, **GPT),
    "opt": text("opt", "ForCausalLM", ffn_dim=37, word_embed_proj_dim=32), "bloom": text("bloom", n_layer=2, n_head=4),
    "codegen": text("codegen", rotary_dim=4, **GPT),
    "llama": text("llama", "ForCausalLM", num_key_value_heads=2), "mistral": text("mistral", "ForCausalLM", **GQA),
    "qwen2": text("qwen2", "ForCausalLM", num_key_value_heads=2), "qwen3": text("qwen3", "ForCausalLM", **GQA),
    "gemma": text("gemma", "ForCausalLM", **GQA), "gemma2": text("gemma2", "ForCausalLM", **GQA),
    "phi": text("phi", "ForCausalLM", num_key_value_heads=4),
    "phi3": text("phi3", "ForCausalLM", num_key_value_heads=4),
    "falcon": text("falcon", "ForCausalLM"), "stablelm": text("stablelm", "ForCausalLM", num_key_value_heads=2),
    "olmo": text("olmo", "ForCausalLM", num_key_value_heads=2), "cohere": text("cohere", "ForCausalLM",
                                                                           num_key_value_heads=2),
    "starcoder2": text("starcoder2", "ForCausalLM", num_key_value_heads=2),
    "granite": text("granite", "ForCausalLM", num_key_value_heads=2),
    "mixtral": text("mixtral", "ForCausalLM", num_local_experts=4, intermediate_size=48, **GQA),
    "qwen2_moe": text("qwen2_moe", "ForCausalLM", num_key_value_heads=2, num_experts=4, moe_intermediate_size=16,
                      intermediate_size=48, shared_expert_intermediate_size=16),
    "mamba": text("mamba", "ForCausalLM", state_size=4),
    "t5": text("t5", d_model=32, d_ff=37, d_kv=8, num_layers=2, num_heads=4, decoder_start_token_id=0),
    "bart": text("bart", **TEXTS), "pegasus": text("pegasus", **TEXTS), "marian": text("marian", **TEXTS),
    "m2m_100": text("m2m_100", **TEXTS), "blenderbot": text("blenderbot", **TEXTS),
    "whisper": whisper, "clip": clip, "wav2vec2": wav2vec2,
    "vit": image("vit"), "deit": image("deit"), "beit": image("beit"), "dinov2": image("dinov2"),
    "vit_mae": image("vit_mae"), "siglip_vision": image("siglip_vision_model"),
    "swin": image("swin", patch_size=2, embed_dim=16, depths=[1, 1], num_attention_heads=[2, 2], window_size=4),
    "convnext": image("convnext", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2),
    "resnet": image("resnet", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]),
    "segformer": image("segformer", 64, num_encoder_blocks=2, depths=[1, 1], hidden_sizes=[16, 16], sr_ratios=[4, 2],
                       num_attention_heads=[1, 2], patch_sizes=[7, 3], strides=[4, 2], mlp_ratios=[2, 2]),
    "mobilevit": image("mobilevit", 64, image_size=64, hidden_sizes=[16, 16, 16], neck_hidden_sizes=[8] * 6 + [16]),
    "regnet": image("regnet", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], groups_width=8),
    **{f"timm:{name}": of_timm(name) for name in (
        "resnet18", "resnet50", "mobilenetv2_050", "mobilenetv3_small_050", "efficientnet_b0", "convnext_atto",
        "regnetx_002", "regnety_002", "densenet121", "ghostnet_100", "repvgg_a0", "dla34", "hardcorenas_a",
        "mnasnet_050", "semnasnet_050", "xcit_nano_12_p16_224", "resnext26ts", "skresnet18", "res2net50_14w_8s",
        "vgg11", "lcnet_050", "tinynet_e", "poolformer_s12", "edgenext_xx_small", "fbnetc_100",
        "seresnet18", "resnest14d", "cspresnet50", "selecsls42", "dpn48b", "ese_vovnet19b_dw", "mobileone_s0")},
    **{f"timm:{name}": of_timm(name, img_size=64) for name in (
        "vit_tiny_patch16_224", "deit_tiny_patch16_224", "mixer_s16_224", "gmlp_ti16_224", "resmlp_12_224",
        "cait_xxs24_224")},
    "timm:inception_v3": of_timm("inception_v3", 128),
    "timm:swin_tiny": of_timm("swin_tiny_patch4_window7_224", img_size=64, window_size=4),
    "diffusers:unet": of_diffusers("UNet2DModel", lambda: {"sample": torch.randn(2, 3, 16, 16), "timestep": 5}, **UNET,
                                   down_block_types=("DownBlock2D", "AttnDownBlock2D"), attention_head_dim=4,
                                   up_block_types=("AttnUpBlock2D", "UpBlock2D")),
    "diffusers:unet_condition": of_diffusers(
        "UNet2DConditionModel", lambda: {"sample": torch.randn(2, 4, 16, 16), "timestep": 5,
                                         "encoder_hidden_states": torch.randn(2, 7, 16)}, **UNET,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), cross_attention_dim=16, attention_head_dim=4,
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D")),
    "diffusers:autoencoder_kl": of_diffusers(
        "AutoencoderKL", lambda: {"sample": torch.randn(2, 3, 16, 16)}, block_out_channels=(8, 16), norm_num_groups=4,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2),
    "diffusers:dit": of_diffusers(
        "DiTTransformer2DModel", lambda: {"hidden_states": torch.randn(2, 4, 8, 8), "timestep": torch.tensor([3, 5]),
                                          "class_labels": torch.tensor([1, 2])},
        num_attention_heads=2, attention_head_dim=8, in_channels=4, num_layers=2, sample_size=8, patch_size=2,
        num_embeds_ada_norm=10),
    "diffusers:autoencoder_tiny": of_diffusers("AutoencoderTiny", lambda: {"sample": torch.randn(2, 3, 16, 16)},
                                                  encoder_block_out_channels=(8, 8), decoder_block_out_channels=(8, 8),
                                                  num_encoder_blocks=(1, 1), num_decoder_blocks=(1, 1),
                                                  upsampling_scaling_factor=2),
    "dlrm": ranking, "lstm": recurrent(torch.nn.LSTM), "gru": recurrent(torch.nn.GRU), "rnn": recurrent(torch.nn.RNN),
}


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for x in value.values():
            yield from tensors_in(x)
    elif isinstance(value, (list, tuple)):
        for x in value:
            yield from tensors_in(x)


def largest_finite(x: torch.Tensor) -> float:
    return float(x.detach().abs().nan_to_num(0.0, 0.0).max()) if x.numel() else 0.0


def difference(found: Any, expected: Any, largest: float = 0.0) -> float:
    """The largest difference, as a part of the largest element."""
    worst = 0.0
    for x, y in zip(tensors_in(found), tensors_in(expected), strict=True):
        if y.is_floating_point() and y.numel():
            same = (x == y) | (x.isnan() & y.isnan())
            gap = torch.where(same, 0.0, (x - y).detach().abs().nan_to_num(nan=float("inf"))).max()
            worst = max(worst, float(gap) / max(largest_finite(y), largest, 1e-6))
        elif not torch.equal(x, y):
            return float("inf")
    return worst


def seeded(call: Any, inputs: dict[str, Any]) -> Any:
    torch.manual_seed(3)
    return call(**inputs)


def trained(model: torch.nn.Module, call: Any, inputs: dict[str, Any]) -> tuple[Any, list[torch.Tensor]]:
    model.zero_grad()
    out = seeded(call, inputs)
    loss = sum((x * torch.linspace(0.5, 1.5, x.numel(), dtype=x.dtype).reshape(x.shape)).mean()
               for x in tensors_in(out) if x.is_floating_point() and x.requires_grad)
    loss.backward()
    return out, [torch.zeros(()) if p.grad is None else p.grad.clone() for p in model.parameters()]


def apart(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> float:
    """How far gradients are apart; small ones count as a part of the largest."""
    most = max((largest_finite(g) for g in wanted), default=0.0)
    return difference(found, wanted, most * 1e-3)


def made(make: Case, wide: bool = False) -> tuple[torch.nn.Module, torch.nn.Module, Any, dict[str, Any]]:
    """A model, a copy for PyTorch, the model compiled by Tenon, and its inputs, in double precision where wide."""
    torch.manual_seed(0)
    model, inputs = make()
    if wide:
        model = model.double()
        inputs = {k: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
                  for k, x in inputs.items()}
    torch._dynamo.reset()
    return model, copy.deepcopy(model), torch.compile(model, backend="tenon"), inputs


def training_verdicts(results: float, gradients: float, seconds: float, make: Case) -> list[str]:
    """Single precision can say that both are equal; that they are not, double precision has to."""
    if results <= 1e-4 and gradients <= 1e-3:
        return [verdict("training", results, 1e-4, seconds), verdict("gradients", gradients, 1e-3, 0)]
    model, eager, compiled, inputs = made(make, wide=True)
    model.train(), eager.train()
    found, wanted = trained(model, compiled, inputs), trained(eager, eager, inputs)
    return [verdict(f"training (single {results:.1e}) in double precision", difference(found[0], wanted[0]), 1e-8,
                    seconds),
            verdict(f"gradients (single {gradients:.1e}) in double precision", apart(found[1], wanted[1]), 1e-8, 0)]


def judged(make: Case) -> str:
    """What a line says of a model."""
    tenon.torch.reset_report()
    model, eager, compiled, inputs = made(make)
    said = []
    model.eval(), eager.eval()
    with torch.no_grad():
        expected = seeded(eager, inputs)
        began = time.perf_counter()
        found = seeded(compiled, inputs)
        said.append(verdict("inference", difference(found, expected), 1e-4, time.perf_counter() - began))
    model.train(), eager.train()
    results, gradients, seconds = 0.0, 0.0, 0.0
    for _ in range(2):
        began = time.perf_counter()
        found = trained(model, compiled, inputs)
        seconds = seconds or time.perf_counter() - began
        expected = trained(eager, eager, inputs)
        results = max(results, difference(found[0], expected[0]))
        gradients = max(gradients, apart(found[1], expected[1]))
    report = tenon.torch.report()
    ran = [f"graphs {report.graphs}", f"in PyTorch: {dict(report.in_torch) or 'nothing'}"]
    ran += [f"{name}: {why}" for name, why in report.reasons.items()]
    return "; ".join([*said, *training_verdicts(results, gradients, seconds, make), *ran])


def verdict(what: str, error: float, allowed: float, seconds: float) -> str:
    return f"{what} {'ok' if error <= allowed else f'WRONG by {error:.1e}'}" + (f" {seconds:.0f} s" if seconds else "")


def main(wanted: list[str]) -> None:
    for name, make in MODELS.items():
        if not wanted or any(w in name for w in wanted):
            try:
                print(f"{name:28}", judged(make), flush=True)
            except Exception as error:
                if os.environ.get("TRACE"):
                    traceback.print_exc()
                print(f"{name:28} FAILED {type(error).__name__}: {str(error)[:300]!r}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
