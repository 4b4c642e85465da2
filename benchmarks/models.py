"""The networks that are measured, each written once for Tenon and PyTorch, and the runs that are timed.

    runs = {"Tenon": tenon_run(WORKLOADS["gpt"]), "PyTorch": torch_run(WORKLOADS["gpt"])}
    runs["Tenon"]()             # one step (or one inference), until its result is there to be read

A network is a function of the library's `nn`, whose names Tenon shares with PyTorch.  All runs of a workload start from
the same weights and see the same inputs, so the number that a run returns can be compared (`tests/interop`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

Run = Callable[[], Any]
Network = Callable[[Any], Any]


# ---------------------------------------------------------------- networks

def mlp(nn: Any, sizes: tuple[int, ...] = (784, 512, 512, 10)) -> Any:
    """Linear layers with ReLU between them."""
    layers: list[Any] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def small_cnn(nn: Any, side: int = 28, channels: tuple[int, int, int] = (1, 32, 64), kernel: int = 3) -> Any:
    """Two convolutions of square pictures, a pooling, two linear layers."""
    before, between, after = channels
    return nn.Sequential(
        nn.Conv2d(before, between, kernel, padding=kernel // 2), nn.ReLU(),
        nn.Conv2d(between, after, kernel, padding=kernel // 2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(after * (side // 2)**2, 128), nn.ReLU(), nn.Linear(128, 10))


def resnet(nn: Any, bottleneck: bool, blocks: tuple[int, ...], classes: int, small: bool) -> Any:
    """He et al., 2015.  `small` pictures (32 x 32) begin with a 3 x 3 convolution, others with a strided 7 x 7 one."""

    def normalised(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[Any]:
        return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)]

    class Block(nn.Module):                                     # type: ignore[misc, name-defined]
        def __init__(self, inputs: int, width: int, stride: int):
            super().__init__()
            outputs = 4 * width if bottleneck else width
            if bottleneck:
                layers = [*normalised(inputs, width, 1), nn.ReLU(), *normalised(width, width, 3, stride), nn.ReLU(),
                          *normalised(width, outputs, 1)]
            else:
                layers = [*normalised(inputs, width, 3, stride), nn.ReLU(), *normalised(width, width, 3)]
            self.main = nn.Sequential(*layers)
            self.shortcut = nn.Sequential(
                *(normalised(inputs, outputs, 1, stride) if stride > 1 or inputs != outputs else []))

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.main(x) + self.shortcut(x))

    stem = [*normalised(3, 64, 3), nn.ReLU()] if small else \
        [*normalised(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    layers, channels = [], 64
    for stage, count in enumerate(blocks):
        width = 64 * 2**stage
        for k in range(count):
            layers.append(Block(channels, width, 2 if stage and not k else 1))
            channels = 4 * width if bottleneck else width
    return nn.Sequential(*stem, *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def resnet18(nn: Any) -> Any:
    """For pictures of 32 x 32 in 10 classes."""
    return resnet(nn, False, (2, 2, 2, 2), 10, small=True)


def resnet50(nn: Any) -> Any:
    """For pictures of 224 x 224 in 1000 classes."""
    return resnet(nn, True, (3, 4, 6, 3), 1000, small=False)


def mobilenet(nn: Any) -> Any:
    """Sandler et al., 2018: MobileNetV2, whose channels are convolved each by itself, for pictures of 224 x 224."""

    def normalised(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> list[Any]:
        return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
                nn.BatchNorm2d(outputs)]

    class Block(nn.Module):                                     # type: ignore[misc, name-defined]
        def __init__(self, inputs: int, outputs: int, stride: int, growth: int):
            super().__init__()
            width, self.adds = growth * inputs, stride == 1 and inputs == outputs
            wider = [*normalised(inputs, width), nn.ReLU6()] if growth > 1 else []
            self.main = nn.Sequential(*wider, *normalised(width, width, 3, stride, width), nn.ReLU6(),
                                      *normalised(width, outputs))

        def forward(self, x: Any) -> Any:
            return x + self.main(x) if self.adds else self.main(x)

    layers, channels = [*normalised(3, 32, 3, 2), nn.ReLU6()], 32
    for growth, outputs, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                           (6, 160, 3, 2), (6, 320, 1, 1)):
        for k in range(count):
            layers.append(Block(channels, outputs, stride if k == 0 else 1, growth))
            channels = outputs
    return nn.Sequential(*layers, *normalised(channels, 1280), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(1280, 1000))


def transformer_block(nn: Any, width: int, heads: int, causal: bool, norm_first: bool) -> Any:
    """Attention and a two-layer network, each added to its input; [batch, length, width] to the same."""

    class Block(nn.Module):                                     # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def attend(self, x: Any) -> Any:
            n, t, _ = x.shape
            qkv = self.qkv(x).reshape(n, t, 3, heads, width // heads)
            q, k, v = (qkv[:, :, i].swapaxes(1, 2) for i in range(3))
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return self.project(mixed.swapaxes(1, 2).reshape(n, t, width))

        def transform(self, x: Any) -> Any:
            return self.narrow(nn.functional.gelu(self.widen(x)))

        def forward(self, x: Any) -> Any:
            if norm_first:
                x = x + self.attend(self.norm1(x))
                return x + self.transform(self.norm2(x))
            x = self.norm1(x + self.attend(x))
            return self.norm2(x + self.transform(x))

    return Block()


def gpt(nn: Any, layers: int = 6, width: int = 384, heads: int = 6, vocabulary: int = 256, context: int = 256) -> Any:
    """Tokens [batch, context] to scores of the next ones; the embedding is also the weight of the last layer."""

    class GPT(nn.Module):                                       # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList([transformer_block(nn, width, heads, True, True) for _ in range(layers)])
            self.norm = nn.LayerNorm(width)

        def forward(self, ids: Any) -> Any:
            x = self.tokens(ids) + self.positions.weight[:ids.shape[1]]
            for block in self.blocks:
                x = block(x)
            return nn.functional.linear(self.norm(x), self.tokens.weight)

    return GPT()


def bert(nn: Any, layers: int = 12, width: int = 768, heads: int = 12, vocabulary: int = 30522) -> Any:
    """Tokens [batch, length] to features: the encoder of BERT-base."""

    class Bert(nn.Module):                                      # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(512, width)
            self.norm = nn.LayerNorm(width)
            self.blocks = nn.ModuleList([transformer_block(nn, width, heads, False, False) for _ in range(layers)])

        def forward(self, ids: Any) -> Any:
            x = self.norm(self.tokens(ids) + self.positions.weight[:ids.shape[1]])
            for block in self.blocks:
                x = block(x)
            return x

    return Bert()


def vit(nn: Any, layers: int = 12, width: int = 768, heads: int = 12) -> Any:
    """Dosovitskiy et al., 2020: pictures of 224 x 224, in patches of 16 x 16, to scores of 1000 classes."""

    class ViT(nn.Module):                                       # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.patches, self.positions = nn.Conv2d(3, width, 16, 16), nn.Embedding(14 * 14, width)
            self.blocks = nn.ModuleList([transformer_block(nn, width, heads, False, True) for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

        def forward(self, x: Any) -> Any:
            x = self.patches(x).reshape(x.shape[0], width, 14 * 14).swapaxes(1, 2) + self.positions.weight
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x).mean(1))

    return ViT()


def lstm(nn: Any, hidden: int = 256) -> Any:
    """Sequences [length, batch, hidden] to scores of ten classes of every step."""

    class Recurrent(nn.Module):                                 # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.out = nn.LSTM(hidden, hidden), nn.Linear(hidden, 10)

        def forward(self, x: Any) -> Any:
            return self.out(self.lstm(x)[0])

    return Recurrent()


def branches(nn: Any, branch: Callable[[], list[Any]], count: int = 4) -> Any:
    """The sum of networks that do not depend on each other."""

    class Branches(nn.Module):                                  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.branches = nn.ModuleList([nn.Sequential(*branch()) for _ in range(count)])

        def forward(self, x: Any) -> Any:
            return sum(branch(x) for branch in self.branches)

    return Branches()


def matmul_branches(nn: Any, width: int = 256) -> Any:
    """Four times two linear layers, of vectors."""
    return branches(nn, lambda: [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)])


def conv_branches(nn: Any, channels: int = 32) -> Any:
    """Four times two convolutions, of one picture."""
    return branches(nn, lambda: [nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
                                 nn.Conv2d(channels, channels, 3, padding=1)])


# ---------------------------------------------------------------- workloads

@dataclass(frozen=True)
class Workload:
    """A network, its inputs, and what is done with it.

    `optimizer` makes one of a library's `optim` and parameters; a workload without one is inference.  A `narrow` one is
    run under the library's `autocast`, in bfloat16.
    """

    name: str
    network: Network
    inputs: Callable[[np.random.Generator], tuple[np.ndarray, ...]]
    optimizer: Callable[[Any, Any], Any] | None = None
    narrow: bool = False


def pictures(batch: int, channels: int, side: int) -> Callable[[np.random.Generator], tuple[np.ndarray, ...]]:
    """Random pictures with one of ten classes each."""
    return lambda rng: (rng.standard_normal((batch, channels, side, side), np.float32), rng.integers(0, 10, batch))


def tokens(vocabulary: int, *shape: int) -> Callable[[np.random.Generator], tuple[np.ndarray, ...]]:
    """Random tokens, and random tokens to be predicted."""
    return lambda rng: (rng.integers(0, vocabulary, shape), rng.integers(0, vocabulary, shape))


def vectors(classes: int, *shape: int) -> Callable[[np.random.Generator], tuple[np.ndarray, ...]]:
    """Random vectors with a class each."""
    return lambda rng: (rng.standard_normal(shape, np.float32), rng.integers(0, classes, shape[:-1]))


def adam(optim: Any, parameters: Any) -> Any:
    return optim.Adam(parameters, lr=1e-3)


def adamw(optim: Any, parameters: Any) -> Any:
    return optim.AdamW(parameters, lr=3e-4)


def momentum(optim: Any, parameters: Any) -> Any:
    return optim.SGD(parameters, lr=0.01, momentum=0.9)


WORKLOADS = {workload.name: workload for workload in (
    Workload("mlp", mlp, vectors(10, 128, 784), adam),
    Workload("small_cnn", small_cnn, pictures(64, 1, 28), momentum),
    Workload("resnet18", resnet18, pictures(32, 3, 32), momentum),
    Workload("gpt", gpt, tokens(256, 8, 256), adamw),
    Workload("lstm", lstm, vectors(10, 64, 32, 256), momentum),
    Workload("resnet50_1", resnet50, pictures(1, 3, 224)),
    Workload("resnet50_8", resnet50, pictures(8, 3, 224)),
    Workload("mobilenet_1", mobilenet, pictures(1, 3, 224)),
    Workload("bert_1", bert, tokens(30522, 1, 128)),
    Workload("vit_1", vit, pictures(1, 3, 224)),
    Workload("bert_8", bert, tokens(30522, 8, 128)),
    Workload("gpt_bf16", gpt, tokens(256, 8, 256), adamw, narrow=True),
    Workload("bert_1_bf16", bert, tokens(30522, 1, 128), narrow=True),
    Workload("four_matmuls", matmul_branches, vectors(10, 64, 256)),
    Workload("four_convs", conv_branches, pictures(1, 32, 28)),
)}


def weights(workload: Workload, seed: int = 0) -> dict[str, np.ndarray]:
    """The numbers that every library starts from, by name: normal ones of a deviation that keeps activations near 1."""
    from tenon import nn

    rng = np.random.default_rng(seed)
    found = {}
    for name, value in workload.network(nn).state_dict().items():
        start = np.asarray(value)
        deviation = 0.02 if start.ndim < 2 or "tokens" in name or "positions" in name else start[0].size**-0.5
        if start.dtype.kind == "f":
            centre = start if start.min() == start.max() else 0          # the ones and zeros of normalisations
            found[name] = (centre + deviation * rng.standard_normal(start.shape)).astype(start.dtype)
        else:
            found[name] = start
    return found


def inputs(workload: Workload, seed: int = 1) -> tuple[np.ndarray, ...]:
    """The inputs that every library is given."""
    return workload.inputs(np.random.default_rng(seed))


def tenon_run(workload: Workload, jit: Callable[..., Any] | None = None) -> Run:
    """One call is a training step, or an inference, in Tenon; returns the loss, or the sum of the outputs."""
    import tenon as tn

    step, data = _tenon_step(workload)
    compiled = (jit or tn.jit)(step)
    return lambda: float(compiled(*data))


def tenon_graph(workload: Workload) -> Any:
    """The captured graph of a step."""
    return tenon_capture(workload).graph


def tenon_capture(workload: Workload) -> Any:
    """The capture of a step: its graph, and the program that a call runs."""
    import tenon as tn

    step, data = _tenon_step(workload)
    return tn.jit(step).capture(*data)


def _tenon_step(workload: Workload) -> tuple[Callable[[Any, Any], Any], list[Any]]:
    import tenon as tn
    from tenon import nn, optim

    net = workload.network(nn)
    net.load_state_dict(weights(workload))
    narrow = partial(tn.autocast, enabled=workload.narrow)
    return _step(net, nn, optim, workload, tn.no_grad, narrow), [tn.asarray(x) for x in inputs(workload)]


def torch_run(workload: Workload, compiled: bool = False, channels_last: bool = False) -> Run:
    """The same in PyTorch: eager, or by torch.compile; `channels_last` stores pictures so."""
    import torch

    net = torch_net(workload)
    data = [torch.from_numpy(x) for x in inputs(workload)]
    if channels_last:
        net = net.to(memory_format=torch.channels_last)
        data[0] = data[0].to(memory_format=torch.channels_last)
    step = _step(net, torch.nn, torch.optim, workload, torch.no_grad,
                 partial(torch.autocast, "cpu", torch.bfloat16, enabled=workload.narrow))
    chosen = torch.compile(step) if compiled else step
    return lambda: float(chosen(*data))


def torch_net(workload: Workload) -> Any:
    """The network in PyTorch, with the weights that all begin with."""
    import torch

    net = workload.network(torch.nn)
    net.load_state_dict({name: torch.from_numpy(np.array(x)) for name, x in weights(workload).items()})
    return net


def _step(net: Any, nn: Any, optim: Any, workload: Workload, no_grad: Any,
          autocast: Any) -> Callable[[Any, Any], Any]:
    """What both libraries run: loss, gradients and the optimizer's update, or the network alone."""
    if workload.optimizer is None:
        net.eval()

        def infer(x: Any, _: Any) -> Any:
            with no_grad(), autocast():
                return net(x).sum()
        return infer
    optimizer = workload.optimizer(optim, net.parameters())

    def train(x: Any, y: Any) -> Any:
        with autocast():
            scores = net(x)
            loss = nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()
    return train
