"""Convolutions and both their gradients, compiled, beside PyTorch: one thread, as fractions of the FMA peak.

    TENON_THREADS=1 python -m benchmarks.convolution [--seconds 0.5] [3x3 strided ...]

PyTorch runs channels first and, in the second figure, channels last; the ratio is to the faster one.
"""
import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import tenon as tn
from benchmarks.machine import fma_run
from benchmarks.timing import compare, installed
from tenon.config import config
from tenon.ops.convolution import conv_input_grad, conv_weight_grad


@dataclass(frozen=True)
class Case:
    """x [images, channels, *sizes], w [filters, channels / groups, *kernel]."""
    images: int
    channels: int
    sizes: tuple[int, ...]
    filters: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    groups: int = 1

    @property
    def padding(self) -> int:
        return self.dilation * (self.kernel - 1) // 2

    @property
    def counts(self) -> tuple[int, ...]:
        reach = self.dilation * (self.kernel - 1) + 1
        return tuple((n + 2 * self.padding - reach) // self.stride + 1 for n in self.sizes)

    @property
    def operations(self) -> int:
        taps = self.channels // self.groups * self.kernel ** len(self.sizes)
        return 2 * self.images * self.filters * taps * int(np.prod(self.counts))


CASES = {
    "3x3": [Case(64, 32, (28, 28), 64, 3), Case(8, 64, (56, 56), 64, 3), Case(8, 256, (14, 14), 256, 3),
            Case(32, 64, (32, 32), 64, 3), Case(32, 512, (4, 4), 512, 3)],
    "1x1": [Case(8, 64, (56, 56), 256, 1), Case(8, 1024, (14, 14), 256, 1), Case(8, 512, (7, 7), 2048, 1)],
    "strided": [Case(8, 3, (224, 224), 64, 7, 2), Case(8, 64, (56, 56), 128, 3, 2), Case(8, 256, (56, 56), 512, 1, 2)],
    "dilated": [Case(8, 64, (28, 28), 64, 3, 1, 2)],
    "grouped": [Case(8, 128, (28, 28), 128, 3, groups=32)],
    "depthwise": [Case(8, 128, (28, 28), 128, 3, groups=128), Case(8, 128, (56, 56), 128, 3, 2, groups=128)],
    "1d": [Case(16, 64, (1000,), 64, 9)],
    "3d": [Case(2, 16, (16, 28, 28), 32, 3)],
}


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", nargs="*", default=list(CASES))
    options.add_argument("--seconds", type=float, default=0.5)
    given = options.parse_args(arguments)
    peers = installed("torch")
    for what in given.what:
        for case in CASES[what]:
            for name, ours, theirs in ways(case, peers):
                report(f"{what} {name}", case, ours, theirs, given.seconds)


def ways(case: Case, peers: bool) -> list[tuple[str, Callable[[], object], dict[str, Callable[[], object]]]]:
    """(what, our call, the peer's calls) for the convolution, the gradient of its input and of its weight."""
    random, count = np.random.default_rng(0), len(case.sizes)
    x, w, g = (random.standard_normal(shape).astype(np.float32) for shape in (
        (case.images, case.channels, *case.sizes),
        (case.filters, case.channels // case.groups, *[case.kernel] * count),
        (case.images, case.filters, *case.counts)))
    attrs: dict[str, Any] = {"stride": (case.stride,) * count, "padding": ((case.padding,) * 2,) * count,
                             "dilation": (case.dilation,) * count, "groups": case.groups}
    tx, tw, tg = map(tn.asarray, (x, w, g))
    forward = tn.jit(lambda x, w: tn.conv(x, w, **attrs))
    to_input = tn.jit(lambda g, w: conv_input_grad(g, w, sizes=case.sizes, **attrs))
    to_weight = tn.jit(lambda x, g: conv_weight_grad(x, g, kernel=w.shape[2:], **attrs))
    ours = {"forward": lambda: forward(tx, tw), "input": lambda: to_input(tg, tw), "weight": lambda: to_weight(tx, tg)}
    theirs = torch_ways(case, x, w, g) if peers else {}
    for name, call in ours.items():
        for peer in theirs.get(name, {}).values():
            np.testing.assert_allclose(np.asarray(call()), peer().numpy(), rtol=1e-2, atol=2e-2)
    return [(name, call, theirs.get(name, {})) for name, call in ours.items()]


def torch_ways(case: Case, x: np.ndarray, w: np.ndarray, g: np.ndarray) -> dict[str, dict[str, Callable[[], Any]]]:
    """PyTorch's three, in both layouts."""
    import torch

    torch.set_num_threads(config().threads)
    count = len(case.sizes)
    found: dict[str, dict[str, Callable[[], Any]]] = {"forward": {}, "input": {}, "weight": {}}
    for layout in "first", "last":
        form = {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d}[count]
        form = form if layout == "last" else torch.contiguous_format
        tensors = [torch.from_numpy(a).contiguous(memory_format=form) for a in (x, w, g)]

        def backward(mask: list[bool], tensors: list[Any] = tensors) -> Any:
            tx, tw, tg = tensors
            out = torch.ops.aten.convolution_backward(
                tg, tx, tw, None, [case.stride] * count, [case.padding] * count, [case.dilation] * count, False,
                [0] * count, case.groups, mask)
            return out[mask.index(True)]
        attrs = None, case.stride, case.padding, case.dilation, case.groups
        convolve = partial(getattr(torch.nn.functional, f"conv{count}d"), *tensors[:2], *attrs)
        found["forward"][layout] = convolve
        found["input"][layout] = lambda backward=backward: backward([True, False, False])
        found["weight"][layout] = lambda backward=backward: backward([False, True, False])
    return found


def report(label: str, case: Case, ours: Callable[[], object], theirs: dict[str, Callable[[], object]],
           seconds: float) -> None:
    """One line: the fractions of the FMA peak, and our time divided by the faster peer's."""
    peak, most = fma_run()
    times = compare({"peak": peak, "ours": ours, **theirs}, seconds)
    rates = {name: case.operations / time / (most / times["peak"]) for name, time in times.items() if name != "peak"}
    best = max((rate for name, rate in rates.items() if name != "ours"), default=float("nan"))
    peers = " ".join(f"{rates[name]:.2f}" for name in theirs)
    shape = f"{case.images}x{case.channels}x{'x'.join(map(str, case.sizes))} -> {case.filters}"
    print(f"{label:18} {shape:26} ours {rates['ours']:.2f} ({times['ours'] * 1e3:7.2f} ms)   PyTorch {peers}   "
          f"ours/PyTorch in time {best / rates['ours']:.2f}", flush=True)


if __name__ == "__main__":
    main()
