"""Programs of many kinds, with what they are called with: each is saved, and goes on elsewhere without its source."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import tenon as tn
from tenon import nn, optim

Program = tuple[Any, tuple[Any, ...], dict[str, Any]]      # a function, its arguments, options of `save`
PROGRAMS: dict[str, Callable[[], Program]] = {}


def program(make: Callable[[], Any]) -> Callable[[], Any]:
    """Keep a function that makes (function, arguments) or (function, arguments, options)."""
    PROGRAMS[make.__name__] = lambda: (*make(), {})[:3]
    return make


@program
def elementwise() -> Any:
    return lambda x, y: tn.sin(x) * y + 1, (tn.randn(3, 4), tn.randn(4))


@program
def convolutional() -> Any:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5))
    return net.eval(), (tn.randn(2, 1, 8, 8),)


@program
def batch_norm_in_training() -> Any:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), (tn.randn(8, 3),)


@program
def transformer_with_dropout() -> Any:
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.25), (tn.randn(2, 5, 8),)


@program
def attention_with_dynamic_length() -> Any:
    def attend(q: Any) -> Any:
        return nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    return attend, (tn.randn(2, 2, 6, 4),), {"dynamic": {"q": {0: "B", 2: "T"}}}


@program
def dynamic_batch() -> Any:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8)), (tn.randn(8, 4),), {"dynamic": {"x": {0: "B"}}}


@program
def rnn_until() -> Any:
    cell = nn.Linear(4, 4)

    def run(h: Any) -> Any:
        steps = tn.tensor(0)
        while (h * h).sum() > 0.5 and steps < 50:
            h = tn.tanh(cell(h)) * 0.7
            steps = steps + 1
        return h, steps
    return run, (tn.randn(4),)


@program
def lstm() -> Any:
    return nn.LSTM(3, 5, batch_first=True), (tn.randn(2, 6, 3),)


@program
def branch() -> Any:
    def f(x: Any) -> Any:
        if x.sum() > 0:
            return tn.exp(x)
        return x - 1
    return f, (tn.tensor([1.0, -3.0]),)


@program
def conditional() -> Any:
    return lambda p, x: tn.cond(p, lambda x: x * 2, lambda x: x / 2, x), (tn.tensor(False), tn.randn(3))


@program
def scanned() -> Any:
    return lambda xs: tn.scan(lambda c, x: (c + x, c * x), tn.zeros(3), xs), (tn.randn(4, 3),)


@program
def counted_loop() -> Any:
    def f(x: Any, n: Any) -> Any:
        i = tn.tensor(0)
        while i < n:
            x = x * 1.5
            i = i + 1
        return x
    return f, (tn.randn(3), tn.tensor(4))


@program
def nested_inputs() -> Any:
    def f(batch: Any, scale: Any = 1.0) -> Any:
        return {"sum": batch["a"] + batch["b"][0], "parts": [batch["b"][1] * scale, (batch["a"],)]}
    return f, ({"b": [tn.randn(2), tn.randn(3)], "a": tn.randn(2)},)


@program
def several_outputs() -> Any:
    return lambda x: (x.max(axis=1), x.argmax(axis=1), None, 3, "text", x.shape[0]), (tn.randn(3, 4),)


@program
def integers() -> Any:
    return lambda x, k: (x[k] % 3, x.sum(), k // 2), (tn.arange(10), tn.tensor([1, 5]))


@program
def booleans() -> Any:
    return lambda x: (x > 0, (x > 0).any(), tn.where(x > 0, x, 0.0)), (tn.randn(5),)


@program
def narrow_types() -> Any:
    return lambda x, y: ((x @ x.T).sum(axis=1), y * 2), (tn.randn(4, 4).astype("bfloat16"), tn.ones(3).astype("float16"))


@program
def double_and_complex() -> Any:
    return lambda x, z: (x.cumsum(axis=0), z * z), (tn.randn(3, dtype="float64"), tn.ones(2, dtype="complex64") * 1j)


@program
def closure_over_tensors() -> Any:
    w, table = tn.randn(3, 3), np.arange(6, dtype=np.float32).reshape(2, 3)
    return lambda x: x @ w + table.sum(axis=0) + tn.asarray(table)[0], (tn.randn(2, 3),)


@program
def large_constant() -> Any:
    return lambda x: x + tn.tensor(np.arange(1000, dtype=np.float32)), (tn.randn(1000),)


@program
def empty_sizes() -> Any:
    return lambda x, y: (tn.concat([x, y]), x.sum(), y.mean(axis=0)), (tn.zeros((0, 3)), tn.randn(2, 3))


@program
def scalars() -> Any:
    return lambda x, k=2, mode="add": x + k if mode == "add" else x * k, (tn.tensor(1.5), 3)


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class State:
    h: Any
    t: Any


@program
def classes_of_the_user() -> Any:
    def f(pair: Pair, state: State) -> Any:
        return Pair(pair.left + state.h, state.t), State(state.h * 2, pair.right)
    return f, (Pair(tn.randn(2), tn.randn(3)), State(tn.randn(2), tn.tensor(1)))


@program
def tied_weights() -> Any:
    net = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7, bias=False))
    net[1].weight = net[0].weight
    return net, (tn.tensor([1, 2, 6]),)


@program
def jitted_method() -> Any:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.inner = nn.Linear(3, 2)

        @tn.jit
        def encode(self, x: Any) -> Any:
            return tn.relu(self.inner(x))
    return Model().encode, (tn.randn(2, 3),)


@program
def attribute_as_state() -> Any:
    class Leaky(nn.Module):
        def __init__(self) -> None:
            self.h = tn.zeros(3)

        def forward(self, x: Any) -> Any:
            self.h = self.h * 0.9 + x
            return self.h.sum()
    return Leaky(), (tn.randn(3),)


@program
def gradient_inside() -> Any:
    return lambda x: tn.grad(lambda x: (tn.sin(x) * x).sum())(x), (tn.randn(4),)


@program
def sorted_and_gathered() -> Any:
    return lambda x: (tn.sort(x, axis=-1), x.topk(2), x.take(tn.tensor([0, 2]), axis=1)), (tn.randn(3, 5),)


@program
def random_numbers() -> Any:
    return lambda: tn.randn(3) + tn.rand(3), ()


@program
def linear_algebra() -> Any:
    return lambda x: tn.linalg.solve(x @ x.T + tn.eye(3), x[:, 0]), (tn.randn(3, 3),)


@program
def adam_step() -> Any:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    opt = optim.AdamW(net.parameters(), lr=0.01)

    @tn.jit
    def step(x: Any, y: Any) -> Any:
        loss = nn.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss
    return step, (tn.randn(6, 4), tn.randint(0, 3, (6,)))


@program
def step_that_leaves_gradients() -> Any:
    w = nn.Parameter(tn.randn(3))

    def step(x: Any) -> Any:
        loss = (w * x).sum() ** 2
        loss.backward()
        return loss
    return step, (tn.randn(3),)


@program
def step_with_momentum_and_schedule() -> Any:
    net = nn.Linear(3, 1)
    opt = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    schedule = optim.StepLR(opt, 2)
    schedule.step()

    def step(x: Any) -> Any:
        opt.zero_grad()
        loss = (net(x) ** 2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        return loss
    return step, (tn.randn(4, 3),)


@program
def gru_trained_through_a_loop() -> Any:
    cell, opt_lr = nn.GRUCell(2, 3), 0.05
    opt = optim.SGD(cell.parameters(), lr=opt_lr)

    def step(x: Any, n: Any) -> Any:
        h, i = tn.zeros((1, 3)), tn.tensor(0)
        while i < n:
            h = cell(x, h)
            i = i + 1
        loss = (h * h).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss
    return step, (tn.randn(1, 2), tn.tensor(3))
