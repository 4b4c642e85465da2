"""Every example runs, in a small setting, and finds what it should."""

from __future__ import annotations

import importlib.util
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenon import data

EXAMPLES = Path(__file__).parent.parent / "examples"


def example(name: str) -> Any:
    """The module in examples/ of this name."""
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_evaluation_trace(capsys: pytest.CaptureFixture[str]) -> None:
    trace = example("evaluation_trace").main()
    assert trace.gradients == (5.5, 1.7163378145367738)
    printed = capsys.readouterr().out
    assert "v3' * cos(v0)" in printed and "df/dx2 = 1.7163378145367738" in printed


def test_expression_swell(capsys: pytest.CaptureFixture[str]) -> None:
    rows = example("expression_swell").main(5)
    symbolic, graph = [row[2] for row in rows], [row[3] for row in rows]
    assert all(later > 2.5 * earlier for earlier, later in pairwise(symbolic[1:]))
    assert len(set(np.diff(graph[1:]))) == 1
    for row in rows:
        assert row[4] == pytest.approx(row[5], rel=1e-12)
    assert "l2' = " in capsys.readouterr().out


def test_linear_regression() -> None:
    parameters, loss = example("linear_regression").main(150)
    np.testing.assert_allclose(parameters["weight"].numpy(), [2.0, -3.0, 0.5], atol=0.01)
    np.testing.assert_allclose(parameters["bias"].numpy(), 1.5, atol=0.01)
    assert loss < 2e-4


def test_autoencoder() -> None:
    first, last = example("autoencoder").main(epochs=10)
    assert last < 0.05 < first


def test_vae(capsys: pytest.CaptureFixture[str]) -> None:
    losses = example("vae").main(epochs=6)
    assert losses[-1] < losses[0] - 5
    assert "drawn" in capsys.readouterr().out


def test_char_gpt() -> None:
    loss, text = example("char_gpt").main(steps=40, context=16, width=32, heads=2, layers=1, batch=8, letters=30)
    assert loss < 4.2 and text.startswith("def ") and len(text) == 34


def test_diffusion() -> None:
    losses, drawn = example("diffusion").main(steps=120, width=16, turns=12)
    assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:5])
    real = data.digits()[0].reshape(-1, 64)
    noise = np.clip(np.random.default_rng(0).normal(0.5, 0.5, (10, 64)), 0, 1)
    from_digits = [((pictures.reshape(10, 1, 64) - real)**2).sum(2).min(1).mean() for pictures in (drawn, noise)]
    assert from_digits[0] < 0.5 * from_digits[1]


def test_pipeline_gpt(capsys: pytest.CaptureFixture[str]) -> None:
    one, found = example("pipeline_gpt").main(micro_batches=2, steps=3, batch=4, context=8, width=16, layers=1)
    np.testing.assert_allclose(found, one, rtol=1e-5)
    assert "in 2 stages, 2 micro-batches, 1f1b" in capsys.readouterr().out


def test_data_parallel_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    losses = example("data_parallel_digits").main(epochs=2)
    assert losses[-1] < 0.8 * losses[0]
    folder = str(tmp_path / "run")
    example("data_parallel_digits").main(epochs=1, folder=folder)
    assert example("data_parallel_digits").main(epochs=2, folder=folder) == losses      # it went on, to the bit


def test_gpt_on_a_mesh(capsys: pytest.CaptureFixture[str]) -> None:
    one, found = example("gpt_on_a_mesh").main(steps=3, batch=4, context=8, width=16, layers=1)
    np.testing.assert_allclose(found, one, rtol=1e-5)
    assert "on Mesh({'data': 2, 'model': 2})" in capsys.readouterr().out


def test_mixture_of_experts() -> None:
    one, found, sent = example("mixture_of_experts").main(steps=6, width=8)
    np.testing.assert_allclose(found, one, rtol=1e-5)
    assert sent["all_to_all"] == 4 and "all_gather" not in sent


def test_python_beside_the_model() -> None:
    losses = example("python_beside_the_model").main(steps=150)
    assert losses[-1] < 0.5 * losses[0]
