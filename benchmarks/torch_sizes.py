"""Ten models at their real sizes, run by Tenon, by Inductor and by PyTorch itself, in turns in one process.

    python -m benchmarks.torch_sizes                        all of them, inference and training
    python -m benchmarks.torch_sizes --rounds 3 bert gpt2   some, with fewer rounds
    python -m benchmarks.torch_sizes --without inductor --only inference

A row has the least processor time of a call by each, the ratios of Tenon's to the others', and the processor time up to
the end of the first call, compilers that were started included.  Weights are random; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch

import tenon.torch
from benchmarks.torch_models import Ranking, tensors_in

Case = Callable[[], tuple[torch.nn.Module, dict[str, Any]]]


def words(length: int, size: int, batch: int = 1) -> torch.Tensor:
    return torch.randint(3, size, (batch, length))


def of_timm(name: str, batch: int = 1) -> Case:
    def make() -> tuple[torch.nn.Module, dict[str, Any]]:
        import timm
        return timm.create_model(name, pretrained=False), {"x": torch.randn(batch, 3, 224, 224)}
    return make


def of_transformers(kind: str, length: int, **options: Any) -> Case:
    def make() -> tuple[torch.nn.Module, dict[str, Any]]:
        import transformers
        config = transformers.AutoConfig.for_model(kind, **options)
        inputs: dict[str, Any] = {"input_ids": words(length, config.vocab_size)}
        if kind == "t5":
            inputs["decoder_input_ids"] = words(length // 2, config.vocab_size)
        if kind != "bert":
            inputs["use_cache"] = False
        return transformers.AutoModel.from_config(config), inputs
    return make


def whisper() -> tuple[torch.nn.Module, dict[str, Any]]:
    import transformers
    config = transformers.WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536)
    return transformers.WhisperModel(config).get_encoder(), {"input_features": torch.randn(1, 80, 3000)}


def diffusion() -> tuple[torch.nn.Module, dict[str, Any]]:
    """The U-Net of Stable Diffusion with a quarter of its channels."""
    import diffusers
    net = diffusers.UNet2DConditionModel(
        sample_size=64, block_out_channels=(80, 160, 320, 320), cross_attention_dim=768, attention_head_dim=8,
        norm_num_groups=16)
    return net, {"sample": torch.randn(1, 4, 32, 32), "timestep": 5, "encoder_hidden_states": torch.randn(1, 77, 768)}


class WideRanking(Ranking):
    """DLRM with 26 tables of 10,000 rows."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.bags = torch.nn.ModuleList(torch.nn.EmbeddingBag(10_000, 64, mode="sum") for _ in range(26))
        self.bottom = torch.nn.Sequential(torch.nn.Linear(13, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64))
        self.top = torch.nn.Sequential(torch.nn.Linear(64 + 351, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))

    def forward(self, x: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        first = self.bottom(x)
        rows = torch.stack([first, *(bag(kinds[k]) for k, bag in enumerate(self.bags))], 1)
        i, j = torch.tril_indices(27, 27, -1)
        return self.top(torch.cat([first, (rows @ rows.mT)[:, i, j]], 1))


def ranking() -> tuple[torch.nn.Module, dict[str, Any]]:
    return WideRanking(), {"x": torch.randn(256, 13), "kinds": torch.randint(0, 10_000, (26, 256, 4))}


MODELS: dict[str, Case] = {
    "dlrm": ranking, "mobilenetv3": of_timm("mobilenetv3_large_100"), "whisper": whisper,
    "resnet50": of_timm("resnet50"), "vit": of_timm("vit_small_patch16_224"),
    "t5": of_transformers("t5", 128, d_model=512, d_ff=2048, num_layers=6),
    "gpt2": of_transformers("gpt2", 128), "bert": of_transformers("bert", 128),
    "llama": of_transformers("llama", 128, hidden_size=768, intermediate_size=2048, num_hidden_layers=12,
                             num_attention_heads=12, num_key_value_heads=4),
    "unet": diffusion}
BACKENDS = ("tenon", "inductor", "eager")


def spent() -> float:
    """Seconds of processors, of this process and of those that it waited for."""
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def trained(call: Any, model: torch.nn.Module, inputs: dict[str, Any]) -> Any:
    model.zero_grad(set_to_none=True)
    out = call(**inputs)
    sum(x.float().mean() for x in tensors_in(out) if x.is_floating_point() and x.requires_grad).backward()
    return out


def compared(make: Case, training: bool, backends: list[str], rounds: int) -> dict[str, tuple[float, float]]:
    """Of each backend: the seconds up to the end of the first call, and the least of a call."""
    torch.manual_seed(0)
    model, inputs = make()
    model.train(training)
    calls: dict[str, Callable[[], Any]] = {}
    found: dict[str, tuple[float, float]] = {}
    for name in backends:
        own = copy.deepcopy(model)
        torch._dynamo.reset()
        call = own if name == "eager" else torch.compile(own, backend=name)

        def run(call: Any = call, own: torch.nn.Module = own) -> Any:
            if training:
                return trained(call, own, inputs)
            with torch.no_grad():
                return call(**inputs)
        began = spent()
        run()
        found[name], calls[name] = (spent() - began, math.inf), run
    for _ in range(rounds):
        for name, run in calls.items():
            began = time.process_time()
            run()
            found[name] = found[name][0], min(found[name][1], time.process_time() - began)
    return found


def row(name: str, training: bool, found: dict[str, tuple[float, float]]) -> str:
    first, least = found["tenon"]
    cells = [f"{name:12} {'training' if training else 'inference':9} tenon {least * 1e3:8.1f} ms, first {first:5.1f} s"]
    cells += [f"{other} {b * 1e3:8.1f} ms (x{least / b:.2f}), first {a:5.1f} s" for other, (a, b) in found.items()
              if other != "tenon"]
    return "; ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=("inference", "training"))
    parser.add_argument("--without", action="append", default=[], choices=BACKENDS[1:])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(given.threads)
    tenon.set_num_threads(given.threads)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp())
    ratios: dict[str, list[float]] = {}
    for name in given.models:
        for training in (False, True):
            if given.only == ("inference" if training else "training"):
                continue
            try:
                found = compared(MODELS[name], training, [b for b in BACKENDS if b not in given.without], given.rounds)
            except Exception as error:
                print(f"{name:12} FAILED {type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)
                continue
            print(row(name, training, found), flush=True)
            for other, (_, seconds) in found.items():
                ratios.setdefault(other, []).append(found["tenon"][1] / seconds)
    for other in ratios.keys() - {"tenon"}:
        print(f"geometric mean to {other}: {math.exp(sum(map(math.log, ratios[other])) / len(ratios[other])):.2f}")


if __name__ == "__main__":
    main()
