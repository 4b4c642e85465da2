"""Training steps on meshes: the numbers of one device, whatever is split."""

from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import tenon as tn
from sharded_models import Cnn, Gpt, Mlp, Moe, trained
from tenon import pipeline
from tenon.runtime.spmd_program import SpmdProgram
from tenon.sharding.mesh import Mesh

COLUMNS = {r".*\.[qkv]\.(weight|bias)": ("model",), r".*up\.(weight|bias)": ("model",)}
MEGATRON = {**COLUMNS, r".*\.(o|down)\.weight": (None, "model")}
EXPERTS = {"up": ("data",), "down": ("data",)}
RUNS: dict[str, tuple[type, dict[str, int], dict[str, Any]]] = {
    "mlp data parallel": (Mlp, {"data": 2}, {"data": ("data",)}),
    "mlp data parallel, uneven": (Mlp, {"data": 4}, {"data": ("data",), "size": 7}),
    "mlp data parallel, parts without a row": (Mlp, {"data": 8}, {"data": ("data",), "size": 5}),
    "mlp zero 1": (Mlp, {"data": 2}, {"data": ("data",), "state": "data"}),
    "mlp zero 3": (Mlp, {"data": 3}, {"data": ("data",), "rules": "data"}),
    "mlp first weight in columns": (Mlp, {"model": 2}, {"rules": {"up.*": ("model",)}}),
    "mlp columns and rows": (Mlp, {"data": 2, "model": 2}, {
        "data": ("data",), "rules": {"up.*": ("model",), "down.weight": (None, "model")}, "state": "data"}),
    "cnn data parallel": (Cnn, {"data": 2}, {"data": ("data",)}),
    "cnn data parallel, uneven": (Cnn, {"data": 4}, {"data": ("data",)}),
    "cnn zero 3": (Cnn, {"data": 2}, {"data": ("data",), "rules": "data"}),
    "cnn channels": (Cnn, {"data": 2, "model": 2}, {
        "data": ("data",), "rules": {"first.*": ("model",), "norm.*": ("model",), "second.weight": (None, "model")}}),
    "gpt data parallel": (Gpt, {"data": 2}, {"data": ("data",)}),
    "gpt columns": (Gpt, {"model": 2}, {"rules": {f"blocks{k}": v for k, v in COLUMNS.items()}}),
    "gpt megatron": (Gpt, {"model": 2}, {"rules": {f"blocks{k}": v for k, v in MEGATRON.items()}}),
    "gpt sequence parallel": (Gpt, {"sequence": 3}, {"data": (None, "sequence")}),
    "gpt data and sequence": (Gpt, {"data": 2, "sequence": 2}, {"data": ("data", "sequence")}),
    "gpt zero 3": (Gpt, {"data": 2}, {"data": ("data",), "rules": "data"}),
    "gpt in three dimensions": (Gpt, {"data": 2, "sequence": 2, "model": 2}, {
        "data": ("data", "sequence"), "rules": {f"blocks{k}": v for k, v in MEGATRON.items()}, "state": "data"}),
    "moe data parallel": (Moe, {"data": 2}, {"data": ("data",)}),
    "moe expert parallel": (Moe, {"data": 2}, {"data": ("data",), "rules": EXPERTS, "size": 16}),
    "moe expert and model": (Moe, {"data": 2, "model": 2}, {
        "data": ("data",), "rules": {"up": ("data", None, "model"), "down": ("data", "model")}}),
}


NATIVE = {"mlp columns and rows", "cnn data parallel, uneven", "moe expert parallel"}


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of a rank are those of the reference backend: nothing is compiled to machine code."""
    compiled = partial(pipeline.compile, backend="reference")
    monkeypatch.setattr(SpmdProgram, "compile", property(lambda self: compiled, lambda self, value: None), raising=False)


@cache
def alone(model: type, size: int, dtype: Any = tn.float64) -> Any:
    return trained(model, size=size, dtype=dtype)


@pytest.mark.parametrize("name", sorted(NATIVE))
def test_machine_code_computes_the_same(name: str) -> None:
    model, sizes, how = RUNS[name]
    losses, _ = trained(model, Mesh(sizes), **how)
    np.testing.assert_allclose(losses, trained(model, size=how.get("size", 6))[0], rtol=1e-12)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", RUNS)
def test_losses_and_parameters_are_those_of_one_device(name: str) -> None:
    model, sizes, how = RUNS[name]
    losses, parameters = trained(model, Mesh(sizes), **how)
    expected, others = alone(model, how.get("size", 6))
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    for got, p in zip(parameters, others, strict=True):
        np.testing.assert_allclose(got, p, rtol=1e-9, atol=1e-11)
