"""Every row of the table: what it runs in each library, what limits it, how far ahead of the others Tenon means to be.

    ROWS["gpt"].make("torch")       # a call that does one training step of GPT in PyTorch; None where it cannot

A run is timed by `benchmarks.bursts`.  What is no run - the first step of a process, the memory that it takes, an
import - is a `Process`, whose numbers come from processes that begin anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from benchmarks.models import WORKLOADS, Run, Workload
from benchmarks.other_sizes import OTHER_SIZES

Limit = tuple[str, float]           # what limits, and the seconds that it asks for at least


@dataclass(frozen=True)
class Row:
    """A run of so many `turns`, each of which is `aim` times as fast as the best peer's."""

    make: Callable[[str], Run | None]
    limit: Callable[[], Limit] | None = None
    aim: float = 1.0
    turns: int = 1
    threads: tuple[int, ...] = (1, 2)
    tolerance: float = 2e-3             # of what libraries return, relative to the largest of its numbers


@dataclass(frozen=True)
class Process:
    """Numbers of new processes, one for each of `parts`; the best peer's is `aim` times as large."""

    measure: Callable[[str, int], list[float]]       # of a library, on so many threads
    parts: tuple[str, ...]
    libraries: tuple[str, ...]
    aim: float = 1.0
    unit: str = "s"
    repeats: int = 1


# ---------------------------------------------------------------- networks

def network_row(workload: Workload, aim: float = 1.0) -> Row:
    """A training step or an inference, limited by the multiply-adds of its products."""
    from benchmarks.peers import network

    return Row(lambda library: network(library, workload), lambda: multiply_adds(network_operations(workload)), aim,
               tolerance=2e-2 if workload.narrow else 2e-3)


def network_operations(workload: Workload) -> float:
    """The floating-point operations of all products in the graph, two a multiply-add."""
    from benchmarks.models import tenon_graph
    from tenon.debug.step_times import operations
    from tenon.passes.expand import expand

    return sum(map(operations, expand(tenon_graph(workload)).nodes))


def multiply_adds(operations: float) -> Limit:
    from benchmarks.machine import fma_peak
    from tenon.config import config

    return "FMA peak", operations / fma_peak(threads=config().threads)


def moving(kind: str, size: float) -> Limit:
    """So many bytes that are read, or copied."""
    from benchmarks.machine import bandwidth
    from tenon.config import config

    return f"{kind} bandwidth", size / bandwidth(kind, 1 << 26, config().threads)


# ---------------------------------------------------------------- parts of networks

def product_row(size: str, limit: Callable[[], Limit] | None = None) -> Row:
    """A product of two matrices, or of two batches of them."""
    from benchmarks.matmul import sizes_of

    *batch, m, k, n = sizes_of(size)

    def make(library: str) -> Run | None:
        from benchmarks import matmul

        random = np.random.default_rng(0)
        a, b = (random.standard_normal((*batch, *shape)).astype(np.float32) for shape in ((m, k), (k, n)))
        return matmul.MAKE[library](a, b) if there(library, matmul.MAKE) else None
    return Row(make, limit or (lambda: multiply_adds(2 * prod((*batch, m, k, n)))))


def vector_product_row(size: int) -> Row:
    return product_row(f"1x{size}x{size}", lambda: moving("read", 4 * size * size))


def reduction_row(name: str, arrays: int, aim: float) -> Row:
    """One of `benchmarks.reductions`, which moves so many arrays of 4096 x 1024 at least."""
    def make(library: str) -> Run | None:
        from benchmarks import reductions

        return reductions.run(library, name) if there(library, reductions.MAKE) else None
    return Row(make, lambda: moving("copy", 4 * arrays * 4096 * 1024), aim)


def attention_row(*, causal: bool, gradient: bool) -> Row:
    size = 8, 6, 256, 64

    def make(library: str) -> Run | None:
        from benchmarks import attention

        return attention.MAKE[library](size, causal, gradient, "f32") if there(library, attention.MAKE) else None

    def limit() -> Limit:
        from benchmarks.attention import operations

        return multiply_adds(operations(size, causal, gradient))
    return Row(make, limit)


def decoding_row(aim: float) -> Row:
    """Tokens of a GPT: every turn reads all weights."""
    from benchmarks.decoding import TOKENS

    def make(library: str) -> Run | None:
        from benchmarks import decoding

        return decoding.MAKE[library](*decoding.problem()) if there(library, decoding.MAKE) else None
    return Row(make, aim=aim, turns=TOKENS)


def diffusion_row(part: str, narrow: bool = False) -> Row:
    """A training step of a U-Net, or pictures that it draws."""
    def make(library: str) -> Run | None:
        from benchmarks import diffusion

        able = there(library, diffusion.libraries(part, narrow))
        return diffusion.MAKE[library](part, *diffusion.SIZE, narrow) if able else None
    return Row(make, tolerance=6e-2 if narrow else 2e-3)


def graph_attention_row() -> Row:
    """Two layers with their gradients."""
    def make(library: str) -> Run | None:
        from benchmarks import graph_attention

        return graph_attention.MAKE[library](*graph_attention.SIZE) if there(library, graph_attention.MAKE) else None
    return Row(make)


def gaussian_process_row() -> Row:
    """How likely measurements are, with gradients."""
    def make(library: str) -> Run | None:
        from benchmarks import gaussian_process

        able = there(library, gaussian_process.MAKE)
        return gaussian_process.MAKE[library](gaussian_process.POINTS) if able else None
    return Row(make)


def newton_row(size: int, aim: float) -> Row:
    from benchmarks.loops import TURNS

    def make(library: str) -> Run | None:
        from benchmarks import loops

        makers = {"tenon": loops.newton_of_tenon, "jax": loops.newton_of_jax}
        return makers[library](size) if there(library, makers) else None
    return Row(make, aim=aim, turns=TURNS, threads=(1,))


def eager_row(case: str, turns: int = 1) -> Row:
    def make(library: str) -> Run | None:
        from benchmarks import eager

        return eager.run(library, case) if there(library, ("tenon", "torch")) else None
    return Row(make, turns=turns, threads=(1,))


def call_row(case: str) -> Row:
    """A warm call of a jitted function."""
    def make(library: str) -> Run | None:
        from benchmarks import calls

        return calls.MAKE[case][library]() if there(library, calls.MAKE[case]) else None
    return Row(make, threads=(1,))


def there(library: str, makers: Any) -> bool:
    """Whether a library has a run, and is installed."""
    from benchmarks.peers import able

    return library in makers and able(library)


# ---------------------------------------------------------------- whole processes

COMPILERS = "tenon", "compiled", "jax", "tensorflow", "xla"


def first_step(workload: str, library: str, threads: int) -> list[float]:
    from benchmarks.first_step import measure

    return measure(library, workload, threads)


def growth(workload: str, library: str, threads: int) -> list[float]:
    from benchmarks.memory import measure

    return measure(library, workload, 4, threads)


def import_time(library: str, threads: int) -> list[float]:
    from benchmarks.processes import number

    return [number(["-c", f"import time; start = time.perf_counter(); import {library}; "
                          "print(time.perf_counter() - start)"], threads)]


ROWS: dict[str, Row | Process] = {
    "mlp": network_row(WORKLOADS["mlp"], 1.3),
    "small_cnn": network_row(WORKLOADS["small_cnn"], 1.4),
    "resnet18": network_row(WORKLOADS["resnet18"], 1.15),
    "gpt": network_row(WORKLOADS["gpt"], 1.15),
    "lstm": network_row(WORKLOADS["lstm"]),
    "resnet50_1": network_row(WORKLOADS["resnet50_1"]),
    "resnet50_8": network_row(WORKLOADS["resnet50_8"]),
    "mobilenet_1": network_row(WORKLOADS["mobilenet_1"]),
    "bert_1": network_row(WORKLOADS["bert_1"], 1.08),
    "bert_8": network_row(WORKLOADS["bert_8"], 1.08),
    "vit_1": network_row(WORKLOADS["vit_1"]),
    "gpt_bf16": network_row(WORKLOADS["gpt_bf16"]),
    "bert_1_bf16": network_row(WORKLOADS["bert_1_bf16"]),
    "four_matmuls": network_row(WORKLOADS["four_matmuls"]),
    "four_convs": network_row(WORKLOADS["four_convs"]),
    "matmul_768": product_row("768"),
    "matmul_2048": product_row("2048"),
    "matmul_64": product_row("64x768x768"),
    "matmul_batch": product_row("96x128x64x128"),
    "vector_matmul": vector_product_row(4096),
    "softmax_gelu": reduction_row("softmax(gelu(x*w+b))*s", 2, 2.0),
    "layer_norm": reduction_row("layer norm, gradients", 5, 1.2),
    "attention": attention_row(causal=True, gradient=True),
    "decoding": decoding_row(1.3),
    "unet": diffusion_row("training"),
    "unet_bf16": diffusion_row("training", narrow=True),
    "drawing": diffusion_row("sampling"),
    "graph_attention": graph_attention_row(),
    "gaussian_process": gaussian_process_row(),
    "newton_16": newton_row(16, 1.33),
    "newton_1": newton_row(0, 1.0),
    "eager_add": eager_row("add"),
    "eager_chain": eager_row("chain", 1000),
    "call": call_row("small function"),
    "call_200": call_row("200 tensors held"),
    **{f"first_{name}": Process(partial(first_step, name), ("cold", "warm"), COMPILERS, repeats=3)
       for name in ("mlp", "resnet18", "gpt")},
    **{f"memory_{name}": Process(partial(growth, name), ("cold", "warm"), ("torch", *COMPILERS), 1.33, "MB")
       for name in ("resnet18", "gpt")},
    "import": Process(import_time, ("",), ("tenon", "torch", "jax", "tensorflow"), 1.25, repeats=5),
    **{name: network_row(workload) for name, workload in OTHER_SIZES.items()},
}
