"""Two layers of graph attention with their gradients: rows taken and added along the edges of a graph, beside others.

    OPENBLAS_NUM_THREADS=1 TENON_THREADS=1 python -m benchmarks.graph_attention [--nodes 2000] [--edges 10000]

P. Velickovic et al., Graph Attention Networks, 2018.  An edge says from where to where; the weights of the edges that
meet in a node are a softmax over as many as there are, so all is indices: takes, sums and maxima by node.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

import tenon as tn
from benchmarks.peers import able
from benchmarks.timing import compare, row, use_one_core
from tenon.config import config

Run = Callable[[], np.ndarray]
Weights = dict[str, Any]
SIZE = 2000, 10_000             # nodes, edges
WIDTHS = 128, 64, 7             # what is known of a node, what the first layer makes of it, classes


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in zip(("nodes", "edges"), SIZE, strict=True):
        options.add_argument(f"--{name}", type=int, default=default)
    options.add_argument("--seconds", type=float, default=4.0)
    given = options.parse_args(arguments)
    use_one_core()
    print(row("graph attention", compare(runs(given.nodes, given.edges), given.seconds)))


# ---------------------------------------------------------------- the network

def loss_of(of: Any, weights: Weights, x: Any, start: Any, end: Any, labels: Any) -> Any:
    """How far what the network says of the nodes is from their labels; `of` are the functions of a library."""
    hidden = of.relu(attend(of, weights, "first", x, start, end))
    said = attend(of, weights, "second", hidden, start, end)
    return of.cross_entropy(said, labels)


def attend(of: Any, weights: Weights, layer: str, x: Any, start: Any, end: Any) -> Any:
    """One layer: what the ends of edges make of what comes along them, beside what a node makes of itself."""
    own, rows, sent, met = (weights[f"{layer}.{name}"] for name in ("own", "rows", "sent", "met"))
    h, nodes = x @ rows, x.shape[0]
    score = of.leaky_relu((h @ sent)[start] + (h @ met)[end], 0.2)
    share = of.exp(score - of.largest(score, end, nodes)[end])
    share = share / of.total(share, end, nodes)[end]
    return of.total(h[start] * share[:, None], end, nodes) + x @ own


def problem(nodes: int, edges: int) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Weights by name; what is known of nodes, where edges start and end, labels."""
    random, weights = np.random.default_rng(0), {}
    for layer, (n, m) in zip(("first", "second"), pairwise(WIDTHS), strict=True):
        for name, shape in (("own", (n, m)), ("rows", (n, m)), ("sent", (m,)), ("met", (m,))):
            weights[f"{layer}.{name}"] = random.normal(0, shape[0]**-0.5, shape).astype(np.float32)
    loops = np.arange(nodes)            # every node meets itself, so none is without an edge
    start, end = (np.concatenate([random.integers(0, nodes, edges - nodes), loops]) for _ in range(2))
    return weights, [random.standard_normal((nodes, WIDTHS[0]), np.float32), start, end,
                     random.integers(0, WIDTHS[-1], nodes)]


def joined(*arrays: Any) -> np.ndarray:
    """All numbers in one row."""
    return np.concatenate([np.ravel(x) for x in arrays])


# ---------------------------------------------------------------- the libraries

def runs(nodes: int, edges: int) -> dict[str, Run]:
    """Calls that give the loss and its gradients, on which libraries agree."""
    found = {name: make(nodes, edges) for name, make in MAKE.items() if able(name)}
    expected = found["tenon"]()
    for run in list(found.values())[1:]:
        np.testing.assert_allclose(run(), expected, rtol=2e-3, atol=2e-5)
    return found


def _tenon(nodes: int, edges: int) -> Run:
    class Functions:
        relu, leaky_relu, exp, cross_entropy = tn.relu, tn.leaky_relu, tn.exp, tn.nn.cross_entropy

        @staticmethod
        def total(x: Any, at: Any, count: int) -> Any:
            return tn.zeros((count, *x.shape[1:])).index_add(at, x)

        @staticmethod
        def largest(x: Any, at: Any, count: int) -> Any:
            return tn.full((count,), -tn.inf).scatter_reduce(at, x.detach(), reduce="max")

    weights, given = problem(nodes, edges)
    tensors = {name: tn.asarray(x) for name, x in weights.items()}
    arrays = [tn.asarray(x) for x in given]
    step = tn.jit(tn.value_and_grad(lambda weights, *given: loss_of(Functions, weights, *given)))

    def run() -> np.ndarray:
        loss, gradients = step(tensors, *arrays)
        return joined(loss.numpy(), *(gradients[name].numpy() for name in weights))
    return run


def _torch(nodes: int, edges: int) -> Run:
    import torch

    torch.set_num_threads(config().threads)

    class Functions:
        relu, exp = torch.relu, torch.exp
        leaky_relu, cross_entropy = torch.nn.functional.leaky_relu, torch.nn.functional.cross_entropy

        @staticmethod
        def total(x: Any, at: Any, count: int) -> Any:
            return torch.zeros((count, *x.shape[1:])).index_add(0, at, x)

        @staticmethod
        def largest(x: Any, at: Any, count: int) -> Any:
            return torch.full((count,), -torch.inf).scatter_reduce(0, at, x.detach(), reduce="amax")

    weights, given = problem(nodes, edges)
    tensors = {name: torch.from_numpy(x).requires_grad_() for name, x in weights.items()}
    arrays = [torch.from_numpy(x) for x in given]

    def run() -> np.ndarray:
        loss = loss_of(Functions, tensors, *arrays)
        gradients = torch.autograd.grad(loss, list(tensors.values()))
        return joined(loss.detach().numpy(), *(g.numpy() for g in gradients))
    return run


def _jax(nodes: int, edges: int) -> Run:
    import jax
    import jax.numpy as jnp

    class Functions:
        relu, leaky_relu, exp = jax.nn.relu, jax.nn.leaky_relu, jnp.exp
        total = staticmethod(jax.ops.segment_sum)

        @staticmethod
        def largest(x: Any, at: Any, count: int) -> Any:
            return jax.ops.segment_max(jax.lax.stop_gradient(x), at, count)

        @staticmethod
        def cross_entropy(said: Any, labels: Any) -> Any:
            return -jnp.take_along_axis(jax.nn.log_softmax(said), labels[:, None], 1).mean()

    weights, given = problem(nodes, edges)
    step = jax.jit(jax.value_and_grad(lambda weights, *given: loss_of(Functions, weights, *given)))

    def run() -> np.ndarray:
        loss, gradients = step(weights, *given)
        return joined(loss, *(gradients[name] for name in weights))
    return run


MAKE: dict[str, Callable[[int, int], Run]] = {"tenon": _tenon, "torch": _torch, "jax": _jax}


if __name__ == "__main__":
    main()
