"""ATen operators that models of transformers, timm and diffusers need, and Tenon leaves to PyTorch.

    python benchmarks/torch_operators.py                    every kind that can be made small, a line each
    python benchmarks/torch_operators.py timm: mamba2       those of timm, and one of transformers

PyTorch captures inference and training of a tiny model with random weights; the graphs are translated, not compiled,
and PyTorch runs them.  So a kind takes a second or two, and many can be tried.  Each has a process of its own.
"""

from __future__ import annotations

import inspect
import multiprocessing
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch_models import IMAGE, MODELS, SIZES, Case, tensors_in, words

from tenon.torch.aten import name_of
from tenon.torch.call_plan import is_assertion, is_drawn, is_torchs, make_plan
from tenon.torch.dynamo import decompositions
from tenon.torch.fx_program import numbers_of, sizes_known
from tenon.torch.translate import Refused, translate

SECONDS = 400
SMALL = ("tiny", "nano", "atto", "_s", "18", "small")
MORE_SIZES = {
    "d_model": 32, "n_embd": 32, "dim": 32, "embed_dim": 32, "d_ff": 37, "d_kv": 8, "ffn_dim": 37, "n_layer": 2,
    "n_head": 4, "n_layers": 2, "n_heads": 4, "num_layers": 2, "num_heads": 4, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 37, "decoder_ffn_dim": 37,
    "num_key_value_heads": 2, "head_dim": 8, "embedding_size": 32, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_positions": 64,
    "decoder_start_token_id": 0, "state_size": 4, "rotary_dim": 4, "q_lora_rank": 16, "kv_lora_rank": 16,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "first_k_dense_replace": 1, "n_group": 1,
    "topk_group": 1, "num_decoder_layers": 2, "num_encoder_layers": 2, "attention_head_dim": 8}


def smaller(kind: str) -> Any:
    """The configuration of a kind of model, with few and small layers; its parts too."""
    import transformers
    default = transformers.AutoConfig.for_model(kind)
    given = {k: v for k, v in {**SIZES, **IMAGE, **MORE_SIZES}.items() if isinstance(getattr(default, k, None), int)}
    for name in default.sub_configs:
        part = getattr(default, name, None)
        if part is not None:
            given[name] = {k: v for k, v in {**SIZES, **IMAGE, **MORE_SIZES}.items()
                           if isinstance(getattr(part, k, None), int)}
    return transformers.AutoConfig.for_model(kind, **given)


def of_transformers(kind: str) -> Case:
    def make() -> tuple[torch.nn.Module, dict[str, Any]]:
        import transformers
        config = smaller(kind)
        model = transformers.AutoModel.from_config(config)
        inputs: dict[str, Any] = {}
        names = inspect.signature(model.forward).parameters
        if model.main_input_name == "pixel_values" or "pixel_values" in names:
            size = getattr(config, "image_size", 32)
            inputs["pixel_values"] = torch.randn(2, 3, *((size, size) if isinstance(size, int) else size))
        if model.main_input_name == "input_values":
            inputs["input_values"] = torch.randn(2, 4000)
        if model.main_input_name == "input_ids" or "input_ids" in names:
            inputs["input_ids"] = words()
        if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in names:
            inputs["decoder_input_ids"] = words(2, 7)
        if "use_cache" in names:
            inputs["use_cache"] = False
        return model, inputs
    return make


def of_timm(name: str) -> Case:
    def make() -> tuple[torch.nn.Module, dict[str, Any]]:
        import timm
        size = timm.get_pretrained_cfg(name).input_size if timm.is_model_pretrained(name) else (3, 224, 224)
        return timm.create_model(name, pretrained=False, num_classes=7), {"x": torch.randn(2, *size)}
    return make


def families() -> Iterator[str]:
    """A model of every module of timm, a small one where its name says so."""
    import timm
    for module in timm.list_modules():
        if found := timm.list_models(module=module):
            yield min(found, key=lambda name: (not any(w in name for w in SMALL), len(name), name))


def kinds() -> Mapping[str, Case]:
    """Name -> what makes a model and its inputs."""
    import transformers
    listed = {f"transformers:{kind}": of_transformers(kind) for kind in sorted(transformers.CONFIG_MAPPING.keys())
              if transformers.CONFIG_MAPPING[kind] in transformers.MODEL_MAPPING}
    return {**MODELS, **listed, **{f"timm:{name}": of_timm(name) for name in families()}}


class Survey:
    """A backend that counts what has no rule, and lets PyTorch run the graphs."""

    def __init__(self) -> None:
        self.operators, self.left = 0, Counter[str]()

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        return aot_autograd(fw_compiler=self.counted, decompositions=decompositions(),
                            partition_fn=min_cut_rematerialization_partition)(module, inputs)

    def counted(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        seen: list[int] = []

        def run(args: list[Any]) -> Any:
            if not seen:
                seen.append(1)
                self.look_at(module, list(args))
            found = module.forward(*args)
            args.clear()
            return found
        run._boxed_call = True      # type: ignore[attr-defined]
        return run

    def look_at(self, module: fx.GraphModule, args: list[Any]) -> None:
        inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
        given = dict(zip(inputs, args, strict=True))
        known = sizes_known(given)
        numbers = numbers_of(module.graph, {n: x for n, x in given.items() if not isinstance(x, torch.Tensor)}, known)
        refused: dict[fx.Node, str] = {}
        while True:
            turns = make_plan(module.graph, refused, numbers)
            try:
                for turn in turns:
                    self.translated(turn.tenon, numbers, known)
                break
            except Refused as error:
                refused[error.node] = error.why
        for node in module.graph.nodes:
            if node.op != "call_function" or node in numbers or is_assertion(node) or is_drawn(node):
                continue
            if not is_torchs(node, refused):
                self.operators += 1
            elif name_of(node.target) != "getitem":
                self.left[f"{name_of(node.target)} ({refused.get(node, 'not in the table')[:90]})"] += 1

    @staticmethod
    def translated(nodes: Sequence[fx.Node], numbers: Mapping[fx.Node, Any], known: Any) -> None:
        here = set(nodes)
        inputs = list(dict.fromkeys(n for node in nodes for n in node.all_input_nodes
                                    if n not in here and n not in numbers))
        outputs = [node for node in nodes if any(user not in here for user in node.users)
                   and isinstance(node.meta["val"], torch.Tensor)]
        if outputs:
            translate("survey", inputs, nodes, outputs, numbers, known)


def surveyed(make: Case) -> str:
    torch.manual_seed(0)
    model, inputs = make()
    survey = Survey()
    compiled = torch.compile(model, backend=survey)
    model.eval()
    with torch.no_grad():
        compiled(**inputs)
    model.train()
    out = compiled(**inputs)
    loss = sum(x.mean() for x in tensors_in(out) if x.is_floating_point() and x.requires_grad)
    loss.backward()
    return f"{survey.operators} operators; left: {dict(survey.left) or 'nothing'}"


def apart(make: Case, send: Any) -> None:
    warnings.simplefilter("ignore")
    try:
        said = surveyed(make)
    except Exception as error:
        said = f"FAILED {type(error).__name__}: {' '.join(str(error).split())[:160]}"
    send.send(said)


def main(wanted: list[str]) -> None:
    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    for name, make in kinds().items():
        if wanted and not any(name == f"transformers:{w}" or (w[-1] == ":" and name.startswith(w)) for w in wanted):
            continue
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=apart, args=(make, send))
        process.start()
        said = receive.recv() if receive.poll(SECONDS) else "FAILED: took too long"
        process.kill()
        process.join()
        print(f"{name:36} {said}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
