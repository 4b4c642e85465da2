"""The networks of the benchmarks give the same numbers in Tenon and in PyTorch, so that their times can be compared."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from benchmarks import diffusion, gaussian_process, graph_attention, models
from benchmarks.models import Workload

SMALL = [
    Workload("mlp", partial(models.mlp, sizes=(20, 16, 10)), models.vectors(10, 8, 20), models.adam),
    Workload("small_cnn", models.small_cnn, models.pictures(2, 1, 28), models.momentum),
    Workload("resnet", partial(models.resnet, bottleneck=False, blocks=(1, 1), classes=10, small=True),
             models.pictures(4, 3, 8), models.momentum),
    Workload("bottlenecks", partial(models.resnet, bottleneck=True, blocks=(1, 1), classes=10, small=False),
             models.pictures(2, 3, 32)),
    Workload("gpt", partial(models.gpt, layers=2, width=16, heads=2, vocabulary=32, context=12),
             models.tokens(32, 2, 12), models.adamw),
    Workload("bert", partial(models.bert, layers=1, width=16, heads=2, vocabulary=32), models.tokens(32, 2, 12)),
    Workload("lstm", partial(models.lstm, hidden=8), models.vectors(10, 5, 3, 8), models.momentum),
]


@pytest.mark.parametrize("workload", SMALL, ids=lambda workload: workload.name)
def test_three_steps_give_the_same_numbers(workload: Workload) -> None:
    ours, theirs = models.tenon_run(workload), models.torch_run(workload)
    assert [ours() for _ in range(3)] == pytest.approx([theirs() for _ in range(3)], rel=2e-4)


@pytest.mark.parametrize("part", ["training", "sampling"])
def test_the_diffusion_model_gives_the_same_numbers(part: str) -> None:
    ours, theirs = (diffusion.MAKE[library](part, 8, 8, 2, False) for library in ("tenon", "torch"))
    for _ in range(2):
        np.testing.assert_allclose(ours(), theirs(), rtol=1e-3, atol=1e-3)


def test_graph_attention_gives_the_same_numbers() -> None:
    ours, theirs = (graph_attention.MAKE[library](30, 80)() for library in ("tenon", "torch"))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_a_gaussian_process_gives_the_same_numbers() -> None:
    ours, theirs = (gaussian_process.MAKE[library](70)() for library in ("tenon", "torch"))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
