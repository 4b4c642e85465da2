"""Texts of graphs of every kind: golden tests, operators' examples, training steps, loops with stacks, kernels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tenon as tn
from golden.harness import parse
from operator_examples import graph_of, succeeding
from tenon import nn, optim
from tenon.errors import GraphError
from tenon.graph.ir import Graph
from tenon.graph.text import parse_example, parse_graph, print_graph
from tenon.graph.verify import verify
from tenon.pipeline import optimize

GOLDEN = Path(__file__).parents[1] / "golden"
LONGEST = 40_000        # characters: of a longer one few mutations would be tried


def corpus() -> list[str]:
    """Distinct texts that are accepted, the same in every process."""
    graphs = [print_graph(graph, locations=False) for graph in [*operators(), *steps()]]
    texts = dict.fromkeys([*golden(), *graphs, *map(kernels_of, graphs)])
    return [text for text in texts if text and len(text) <= LONGEST]


def golden() -> Iterator[str]:
    """Inputs and outputs of the passes' tests."""
    for path in sorted(GOLDEN.glob("*.test")):
        for case in parse(path.read_text()):
            for text in (case.input, case.expected):
                if is_accepted(text):
                    yield text


def is_accepted(text: str) -> bool:
    """Whether the text is that of a graph without faults."""
    try:
        verify(parse_graph(text))
        return True
    except GraphError:
        return False


def operators() -> Iterator[Graph]:
    """One node each, and what its gradient is made of."""
    for p in succeeding():
        yield graph_of(parse_example(p.id))


def kernels_of(text: str) -> str:
    """The text of the kernels that a graph becomes; nothing where one of them has no text form."""
    try:
        return print_graph(optimize(parse_graph(text)), locations=False)
    except GraphError:
        return ""


def captured(function: Any, *arrays: Any) -> Graph:
    """The graph of one call."""
    jitted = tn.jit(function)
    jitted(*arrays)
    found: Graph = jitted.capture(*arrays).graph
    return found


def training(model: Any, *inputs: Any) -> Graph:
    """A step of a network: forward, backward, and Adam's update."""
    opt = optim.Adam(model.parameters(), lr=0.01)

    def step(*xs: Any) -> Any:
        loss = (model(*xs) ** 2).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss
    return captured(step, *inputs)


def halved(x: Any) -> Any:
    """A loop of unknown length, whose gradient keeps a stack."""
    return tn.while_loop(lambda s: (s[0] * s[0]).sum() > 1.0, lambda s: (tn.sin(s[0]) * 0.7, s[1] + 1), (x, 0))[0].sum()


def nested(x: Any) -> Any:
    """A loop in a loop: a stack of stacks."""
    def turn(s: Any) -> Any:
        inner = tn.while_loop(lambda t: t[1] < s[1], lambda t: (tn.tanh(t[0]) * t[0], t[1] + 1), (s[0], 0))[0]
        return inner * 0.9, s[1] + 1
    return tn.while_loop(lambda s: s[1] < 3, turn, (x, 0))[0].sum()


def rows(x: Any, w: Any) -> Any:
    """A scan that carries and stacks."""
    carried, stacked = tn.scan(lambda h, row: (tn.tanh(row @ w + h), h * 2), x[0], x)
    return (carried * carried).sum() + stacked.sum()


def chosen(x: Any, k: Any) -> Any:
    """Branches."""
    y = tn.cond(x.sum() > 0, lambda x: x * 2, lambda x: tn.exp(-x), x)
    return tn.switch(k, [lambda y: y + 1, lambda y: y * y, lambda y: tn.sort(y)], y)


def picked(x: Any, k: Any) -> Any:
    """Places among the data: read, written, sorted."""
    y = tn.index_add(x, k, tn.take(x, k, axis=0))
    return tn.where(y > 0, tn.cumsum(y, axis=1), tn.sort(y, axis=1)), tn.topk(y, 2)[1]


def attended(q: Any, k: Any, v: Any) -> Any:
    """Attention, causal."""
    return (nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True) ** 2).sum()


def steps() -> Iterator[Graph]:
    """Networks, loops, branches, indices; also of symbolic sizes."""
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> Any:
        return tn.asarray(rng.standard_normal(shape).astype(np.float32))
    tn.manual_seed(0)
    yield training(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)), floats(4, 6))
    yield training(nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.GELU(), nn.Dropout(0.5)), floats(4, 6))
    yield training(nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)),
                   floats(2, 2, 6, 6))
    yield captured(tn.grad(rows, (0, 1)), floats(5, 3), floats(3, 3))
    yield captured(tn.grad(halved), floats(4))
    yield captured(tn.grad(tn.grad(lambda t: halved(t * tn.ones(3)))), floats())
    yield captured(tn.grad(nested), floats(3))
    yield captured(tn.grad(attended, (0, 1, 2)), floats(1, 2, 5, 4), floats(1, 2, 5, 4), floats(1, 2, 5, 4))
    yield captured(chosen, floats(5), tn.asarray(1))
    yield captured(picked, floats(5, 4), tn.asarray([0, 3, -1]))
    yield captured(tn.grad(lambda x: tn.checkpoint(lambda y: (tn.sin(y) * y).sum())(x)), floats(5))
    for function, shapes in ((lambda x, w: tn.softmax(x @ w, axis=-1).sum(axis=0), ((4, 3), (3, 2))),
                             (lambda x, y: tn.concat([x, y * 2], axis=0)[::2].reshape(-1), ((4, 3), (5, 3)))):
        jitted = tn.jit(function)
        for more in (0, 1, 3):          # a size that differs from one call to the next becomes a symbol
            arrays = [floats(shapes[0][0] + more, *shapes[0][1:]), floats(*shapes[1])]
            jitted(*arrays)
        yield jitted.capture(*arrays).graph
