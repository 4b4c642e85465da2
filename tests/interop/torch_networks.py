"""Random networks: one description, built of PyTorch's layers and of Tenon's, which have the same names.

A network is a list of steps over values; value 0 is the input. A step makes one more value of earlier ones, by a layer
(`Step("Conv2d", (3, 4, 3), {"padding": 1}, (0,))`) or by a function of `FUNCTIONS`. Which steps fit is found by running
them in PyTorch.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

FEW, SIZES = (1, 2, 3, 4, 5), (1, 2, 3, 4, 6, 7, 8, 11, 16, 17)
BIASES = {"bias": (True, True, False)}


@dataclass(frozen=True)
class Step:
    name: str
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    reads: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Network:
    """Steps, the shape of the input without its batch axis, whether it holds words, and how many classes come out."""

    shape: tuple[int, ...]
    steps: tuple[Step, ...]
    words: int = 0
    evaluated: bool = False

    def __str__(self) -> str:
        return "\n".join([f"input: [batch, {', '.join(map(str, self.shape))}]", *(
            f"  {k + 1}: {s.name}{s.args} {s.options or ''} of {s.reads}" for k, s in enumerate(self.steps))])


def first(out: Any) -> Any:
    return out[0] if isinstance(out, tuple) else out


def joined(library: Any, x: Any, y: Any, axis: int) -> Any:
    return library.cat([x, y], axis) if library is torch else library.concat([x, y], axis=axis)


def pooled(library: Any, x: Any) -> Any:
    return library.amax(x, -1) if library is torch else library.max(x, axis=-1)


def halves(library: Any, x: Any, axis: int) -> Any:
    """The parts of an axis, the second one in front."""
    before, n = (slice(None),) * axis, x.shape[axis] // 2
    return joined(library, x[(*before, slice(n, None))], x[(*before, slice(n))], axis)


def attended(library: Any, x: Any, causal: bool, masked: bool, heads: int) -> Any:
    """The attention of x to itself, from operators of arrays."""
    batch, length, width = x.shape
    parts = x.reshape(batch, length, heads, width // heads)
    q = library.permute(parts, (0, 2, 1, 3))
    mask = library.arange(length) % 3 != 1 if masked and not causal else None
    function = library.nn.functional.scaled_dot_product_attention
    out = function(q, q * 0.5, q + 0.25, attn_mask=mask[None, :].expand(length, length) if mask is not None else None,
                   is_causal=causal)
    return library.permute(out, (0, 2, 1, 3)).reshape(batch, length, width)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda library, x, y: x + y,
    "multiply": lambda library, x, y: x * library.tanh(y),
    "average": lambda library, x, y: (x - y * 2) / 3,
    "joined": joined,
    "halves": halves,
    "permuted": lambda library, x, axes: library.permute(x, axes),
    "reshaped": lambda library, x, shape: x.reshape(x.shape[0], *shape),
    "turned_back": lambda library, x, axis: library.flip(x, (axis,)),
    "strided": lambda library, x: x[..., ::2],
    "without_first": lambda library, x: x[..., 1:],
    "rolled": lambda library, x, k: library.roll(x, k, -1),
    "centred": lambda library, x, axis: x - x.mean(axis, keepdim=True) if library is torch
    else x - x.mean(axis=axis, keepdims=True),
    "scaled": lambda library, x, axis: x / (1e-3 + (x * x).sum(axis, keepdim=True)) ** 0.5 if library is torch
    else x / (1e-3 + (x * x).sum(axis=axis, keepdims=True)) ** 0.5,
    "cumulated": lambda library, x, axis: library.cumsum(x, axis) * 0.25,
    "maximum_of_rows": pooled,
    "product_with_itself": lambda library, x: library.matmul(x, library.swapaxes(x, -1, -2)) / x.shape[-1],
    "softmax": lambda library, x, axis: library.softmax(x, axis) * 4,
    "log_softmax": lambda library, x, axis: library.log_softmax(x, axis),
    "chosen": lambda library, x: library.where(x > 0.1, x, x * x - 0.5),
    "clipped": lambda library, x: library.clip(x, -0.7, 0.9),
    "ordered": lambda library, x: library.sort(x, dim=-1)[0] if library is torch else library.sort(x, axis=-1),
    "attended": attended,
    "rows_once_more": lambda library, x: library.cat([x, x[:, :1]], 1) if library is torch
    else library.concat([x, x[:, :1]], axis=1),
}

ACTIVATIONS = ("ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "ELU", "LeakyReLU", "Softplus", "Hardswish", "Mish", "SELU",
               "ReLU6", "Softsign", "LogSigmoid", "Hardtanh", "Tanhshrink", "CELU")


class Maker:
    """Draws steps that fit, by trying them in PyTorch."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.values: list[torch.Tensor] = []
        self.steps: list[Step] = []

    def pick(self, choices: Any) -> Any:
        return self.random.choice(tuple(choices))

    def options(self, **choices: Any) -> dict[str, Any]:
        return {name: self.pick(c) for name, c in choices.items() if self.random.random() < 0.5}

    def network(self) -> Network:
        shape, words = self.start()
        torch.manual_seed(0)
        x = torch.randint(0, words, (3, *shape)) if words else torch.rand(3, *shape, dtype=torch.float64)
        self.values = [x]
        if words:
            self.append(Step("Embedding", (words, self.pick(SIZES)), self.options(padding_idx=(1,))))
        for _ in range(self.random.randint(2, 7)):
            self.one()
        return Network(shape, tuple(self.steps), words, self.random.random() < 0.15)

    def start(self) -> tuple[tuple[int, ...], int]:
        kind = self.pick(("vector", "signal", "image", "image", "image", "volume", "words"))
        if kind == "words":
            return (self.pick(SIZES[1:]),), 7
        spatial = {"vector": 0, "signal": 1, "image": 2, "volume": 3}[kind]
        sizes = (5, 6, 7, 8, 9, 12, 13, 17) if spatial < 3 else (3, 4, 5, 6)
        return (self.pick(SIZES), *(self.pick(sizes) for _ in range(spatial))), 0

    def one(self) -> None:
        """One more step: whichever of those drawn is the first that fits."""
        for _ in range(50):
            step = self.draw()
            if step is not None and self.append(step):
                return

    def append(self, step: Step) -> bool:
        try:
            torch.manual_seed(0)
            made = run_step(torch, build(torch, step), step, self.values)
        except (RuntimeError, ValueError, IndexError, AssertionError):
            return False
        if made.numel() == 0 or made.numel() > 40000 or made.shape[0] != 3 or not 2 <= made.ndim <= 5:
            return False
        self.values.append(made.detach())
        self.steps.append(step)
        return True

    def draw(self) -> Step | None:
        last = len(self.values) - 1
        at = last if self.random.random() < 0.85 else self.random.randrange(len(self.values))
        x = self.values[at]
        if not x.is_floating_point():
            return None
        kinds = [self.activation, self.pair, self.function, self.norm, self.linear]
        kinds += [self.convolution, self.convolution, self.pool, self.other] if x.ndim > 2 else []
        kinds += [self.sequence] if x.ndim == 3 else []
        made: Step = self.pick(kinds)(x, at)
        return made

    def activation(self, x: Any, at: int) -> Step:
        return Step(self.pick(ACTIVATIONS), reads=(at,))

    def pair(self, x: Any, at: int) -> Step | None:
        others = [k for k, y in enumerate(self.values) if y.shape == x.shape and y.is_floating_point()]
        if self.random.random() < 0.7:
            return Step(self.pick(("add", "multiply", "average")), reads=(at, self.pick(others)))
        axis = self.random.randrange(1, x.ndim)
        others = [k for k, y in enumerate(self.values) if y.ndim == x.ndim and y.is_floating_point() and all(
            m == n or i == axis for i, (m, n) in enumerate(zip(x.shape, y.shape)))]
        return Step("joined", (axis,), reads=(at, self.pick(others)))

    def function(self, x: Any, at: int) -> Step | None:
        name = self.pick(name for name in FUNCTIONS if name not in ("add", "multiply", "average", "joined"))
        axis = self.random.randrange(1, x.ndim)
        if name == "product_with_itself" and x.ndim == 2:
            return None
        args: tuple[Any, ...] = ()
        if name in ("halves", "turned_back", "centred", "scaled", "cumulated", "softmax", "log_softmax"):
            args = (axis,)
        elif name == "permuted":
            axes = list(range(1, x.ndim))
            self.random.shuffle(axes)
            args = ((0, *axes),)
        elif name == "reshaped":
            count = x[0].numel()
            one = self.pick([n for n in range(1, count + 1) if count % n == 0])
            args = (self.pick(((one, count // one), (count,), (one, 1, count // one))),)
        elif name == "rolled":
            args = (self.random.randint(-3, 3),)
        elif name == "attended":
            args = (self.random.random() < 0.5, self.random.random() < 0.5, self.pick((1, 2, 4)))
        return Step(name, args, reads=(at,))

    def linear(self, x: Any, at: int) -> Step:
        return Step("Linear", (x.shape[-1], self.pick((*SIZES, 33, 64))), self.options(**BIASES), (at,))

    def norm(self, x: Any, at: int) -> Step:
        channels = x.shape[1]
        name = self.pick(("batch", "batch", "LayerNorm", "RMSNorm", "GroupNorm", "instance"))
        if name in ("LayerNorm", "RMSNorm"):
            axes = self.random.randint(1, max(1, x.ndim - 1))
            return Step(name, (tuple(x.shape[-axes:]),), self.options(**BIASES) if name == "LayerNorm" else {}, (at,))
        if name == "GroupNorm":
            return Step(name, (self.pick([n for n in range(1, channels + 1) if channels % n == 0]), channels),
                        self.options(affine=(True, False)), (at,))
        count = max(1, x.ndim - 2)
        options = self.options(affine=(True, False), track_running_stats=(True, False), momentum=(0.3, None))
        return Step(f"{'BatchNorm' if name == 'batch' else 'InstanceNorm'}{count}d", (channels,), options, (at,))

    def windows(self, count: int) -> dict[str, Any]:
        def one(choices: Any) -> Any:
            return self.pick(choices) if self.random.random() < 0.6 else tuple(self.pick(choices) for _ in range(count))
        return {"stride": one((1, 1, 2, 3)), "padding": one((0, 1, 2, 3)), "dilation": one((1, 1, 2))}

    def convolution(self, x: Any, at: int) -> Step:
        count, channels = x.ndim - 2, x.shape[1]
        groups = self.pick([n for n in range(1, channels + 1) if channels % n == 0])
        groups = self.pick((1, groups, channels))
        filters = groups * self.pick(FEW) if groups > 1 else self.pick((*SIZES, 32))
        kernel = tuple(self.pick((1, 2, 3, 3, 3, 4, 5, 7)) for _ in range(count))
        kernel = (3,) * count if self.random.random() < 0.4 else kernel
        options = {**self.windows(count), **self.options(**BIASES), "groups": groups}
        if self.random.random() < 0.3:
            options |= self.options(output_padding=(0, 1))
            return Step(f"ConvTranspose{count}d", (channels, filters, kernel), options, (at,))
        if self.random.random() < 0.15:
            options |= {"padding_mode": self.pick(("reflect", "replicate", "circular"))}
        elif self.random.random() < 0.15:
            options |= {"padding": "same", "stride": 1}
        return Step(f"Conv{count}d", (channels, filters, kernel), options, (at,))

    def pool(self, x: Any, at: int) -> Step:
        count = x.ndim - 2
        kind = self.pick(("Max", "Avg", "AdaptiveAvg", "AdaptiveMax", "LP"))
        if kind.startswith("Adaptive"):
            return Step(f"{kind}Pool{count}d", (tuple(self.pick(FEW) for _ in range(count)),), {}, (at,))
        kernel = tuple(self.pick((1, 2, 3, 4)) for _ in range(count))
        options = self.options(**self.ranged(kind))
        return Step(f"{kind}Pool{count}d", (2, kernel[0]) if kind == "LP" else (kernel,), options, (at,))

    def ranged(self, kind: str) -> dict[str, Any]:
        chosen: dict[str, Any] = {"stride": (1, 2, 3)}
        if kind != "LP":    # whose windows that reach over the edge PyTorch scales up
            chosen |= {"padding": (0, 1), "ceil_mode": (True, False)}
        if kind == "Max":
            chosen["dilation"] = (1, 2)
        if kind == "Avg":
            chosen["count_include_pad"] = (True, False)
        return chosen

    def other(self, x: Any, at: int) -> Step:
        count = x.ndim - 2
        flat = self.pick((0, 0, 1, 2, 3))
        if flat == 0:
            return Step("Flatten", reads=(at,))
        if flat == 1:
            mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[count]
            options = {"scale_factor": self.pick((2, 3))} | ({"mode": mode} if self.random.random() < 0.5 else {})
            return Step("Upsample", (), options, (at,))
        if flat == 2:
            return Step(f"ConstantPad{count}d", (tuple(self.pick((0, 1, 2)) for _ in range(2 * count)), 0.5), {}, (at,))
        return Step("PReLU", (x.shape[1],), {}, (at,))

    def sequence(self, x: Any, at: int) -> Step:
        width, name = x.shape[-1], self.pick(("RNN", "LSTM", "GRU", "MultiheadAttention", "TransformerEncoderLayer"))
        heads = self.pick([n for n in range(1, width + 1) if width % n == 0])
        if name == "MultiheadAttention":
            return Step(name, (width, heads), {"batch_first": True, **self.options(**BIASES)}, (at, at, at))
        if name == "TransformerEncoderLayer":
            return Step(name, (width, heads, self.pick(SIZES), 0.0), {
                "batch_first": True, **self.options(norm_first=(True, False), activation=("relu", "gelu"))}, (at,))
        options = {"batch_first": True, **self.options(num_layers=(1, 2), bidirectional=(True, False), **BIASES)}
        return Step(name, (width, self.pick(SIZES)), options, (at,))


def build(library: Any, step: Step) -> Any:
    """The step's layer, or None for a function."""
    if step.name in FUNCTIONS:
        return None
    layer = getattr(library.nn, step.name)(*step.args, **step.options)
    return layer.double()


def run_step(library: Any, layer: Any, step: Step, values: list[Any]) -> Any:
    given = [values[k] for k in step.reads]
    if layer is None:
        return FUNCTIONS[step.name](library, *given, *step.args)
    return first(layer(*given))


@cache
def network_class(library: Any) -> type:
    class Random(library.nn.Module):  # type: ignore[misc, name-defined]
        """What a description says, in this library."""

        def __init__(self, network: Network):
            super().__init__()
            self.steps = network.steps
            self.layers = library.nn.ModuleList([layer for s in network.steps if (layer := build(library, s)) is not None])

        def forward(self, x: Any) -> Any:
            values, layers = [x], iter(self.layers)
            for step in self.steps:
                values.append(run_step(library, None if step.name in FUNCTIONS else next(layers), step, values))
            return values[-1].reshape(x.shape[0], -1)

    return Random
