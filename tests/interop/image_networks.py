"""Image networks of the literature, one description each, built of PyTorch's layers or of Tenon's.

    net = IMAGE_NETWORKS["densenet"](Library(torch), TINY)

What a network is made of are its tables of channels and depths, as published; a `Scale` makes it thinner and shallower.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True)
class Scale:
    """The part of a network's channels and of its layers that is built; channels stay multiples of `multiple`."""

    width: float
    depth: float
    multiple: int = 8

    def channels(self, count: int) -> int:
        return max(1, round(count * self.width / self.multiple)) * self.multiple

    def layers(self, count: int) -> int:
        return max(1, round(count * self.depth))


FULL, TINY = Scale(1, 1), Scale(1 / 8, 1 / 4)


@cache
def structures(library: Any) -> dict[str, type]:
    """Modules that join others, of one library."""

    class Residual(library.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, branch: Any, shortcut: Any = None, after: Any = None):
            super().__init__()
            self.branch, self.shortcut, self.after = branch, shortcut, after

        def forward(self, x: Any) -> Any:
            total = self.branch(x) + (x if self.shortcut is None else self.shortcut(x))
            return total if self.after is None else self.after(total)

    class Concatenated(library.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, *branches: Any):
            super().__init__()
            self.branches = library.nn.ModuleList(branches)

        def forward(self, x: Any) -> Any:
            return library.cat([branch(x) for branch in self.branches], 1)

    class Gated(library.nn.Module):  # type: ignore[misc, name-defined]
        """Squeeze and excitation (Hu et al., 2018): channels are scaled by what their means say."""

        def __init__(self, gate: Any):
            super().__init__()
            self.gate = gate

        def forward(self, x: Any) -> Any:
            return x * self.gate(x)

    class SixthOfReLU6(library.nn.Module):  # type: ignore[misc, name-defined]
        """Hardsigmoid by its definition: PyTorch's own gradient has the sixth that float32 knows, 5e-9 away."""

        def forward(self, x: Any) -> Any:
            return library.nn.functional.relu6(x + 3) / 6

    class Shuffle(library.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, groups: int):
            super().__init__()
            self.groups = groups

        def forward(self, x: Any) -> Any:
            n, c, h, w = x.shape
            return library.swapaxes(x.reshape(n, self.groups, c // self.groups, h, w), 1, 2).reshape(n, c, h, w)

    class HalfResidual(library.nn.Module):  # type: ignore[misc, name-defined]
        """ShuffleNet V2's unit (Ma et al., 2018): half of the channels pass as they are."""

        def __init__(self, branch: Any):
            super().__init__()
            self.branch = branch

        def forward(self, x: Any) -> Any:
            half = x.shape[1] // 2
            return library.cat([x[:, :half], self.branch(x[:, half:])], 1)

    class DualPath(library.nn.Module):  # type: ignore[misc, name-defined]
        """A DPN's unit (Chen et al., 2017): the first channels are added, the others joined."""

        def __init__(self, branch: Any, shortcut: Any, added: int, after: Any):
            super().__init__()
            self.branch, self.shortcut, self.added, self.after = branch, shortcut, added, after

        def forward(self, x: Any) -> Any:
            out, d = self.branch(x), self.added
            x = x if self.shortcut is None else self.shortcut(x)
            return self.after(library.cat([x[:, :d] + out[:, :d], x[:, d:], out[:, d:]], 1))

    class Aggregated(library.nn.Module):  # type: ignore[misc, name-defined]
        """A DLA's tree (Yu et al., 2018): a root reads what each of a chain of blocks gives."""

        def __init__(self, root: Any, *blocks: Any):
            super().__init__()
            self.root, self.blocks = root, library.nn.ModuleList(blocks)

        def forward(self, x: Any) -> Any:
            outs = []
            for block in self.blocks:
                x = block(x)
                outs.append(x)
            return self.root(library.cat(outs, 1))

    return {c.__name__: c for c in (Residual, Concatenated, Gated, SixthOfReLU6, Shuffle, HalfResidual, DualPath, Aggregated)}


class Library:
    """Layers of a library, and what is made of a few of them."""

    def __init__(self, library: Any):
        self.nn = library.nn
        for name, made in structures(library).items():
            setattr(self, name, made)
        if library.__name__ == "torch":
            self.Hardsigmoid = self.SixthOfReLU6

    def __getattr__(self, name: str) -> Any:
        return getattr(self.nn, name)

    def convolution(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> Any:
        return self.nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)

    def unit(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: str = "ReLU") -> Any:
        """Convolution, batch norm, and an activation if it has a name."""
        layers = [self.convolution(inputs, outputs, kernel, stride, groups), self.nn.BatchNorm2d(outputs)]
        return self.nn.Sequential(*layers, *([getattr(self.nn, act)()] if act else []))

    def before(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> Any:
        """Batch norm and ReLU in front of a convolution."""
        return self.nn.Sequential(self.nn.BatchNorm2d(inputs), self.nn.ReLU(),
                                  self.convolution(inputs, outputs, kernel, stride, groups))

    def gated(self, channels: int, inner: int, act: str = "ReLU", gate: str = "Sigmoid") -> Any:
        nn = self.nn
        return self.Gated(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, inner, 1), getattr(nn, act)(),
                                        nn.Conv2d(inner, channels, 1), getattr(self, gate)()))

    def head(self, channels: int) -> Any:
        return self.nn.Sequential(self.nn.AdaptiveAvgPool2d(1), self.nn.Flatten(), self.nn.Linear(channels, 10))


def inverted(lib: Library, inputs: int, inner: int, outputs: int, kernel: int, stride: int, act: str,
             gate: Any = None) -> Any:
    """An inverted residual (Sandler et al., 2018): wide in the middle, where channels stand alone."""
    widen = [] if inner == inputs else [lib.unit(inputs, inner, 1, act=act)]
    branch = lib.Sequential(*widen, lib.unit(inner, inner, kernel, stride, inner, act), *([gate] if gate else []),
                            lib.unit(inner, outputs, 1, act=""))
    return lib.Residual(branch) if stride == 1 and inputs == outputs else branch


def mobilenet_v2(lib: Library, scale: Scale) -> Any:
    c, last = scale.channels, scale.channels(32)
    layers = [lib.unit(3, last, act="ReLU6")]
    for expansion, outputs, count, stride in ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                              (6, 160, 3, 2), (6, 320, 1, 1)):
        for k in range(scale.layers(count)):
            layers.append(inverted(lib, last, last * expansion, c(outputs), 3, stride if k == 0 else 1, "ReLU6"))
            last = c(outputs)
    return lib.Sequential(*layers, lib.unit(last, c(1280), 1, act="ReLU6"), lib.head(c(1280)))


def mobilenet_v3(lib: Library, scale: Scale) -> Any:
    c, last = scale.channels, scale.channels(16)
    layers = [lib.unit(3, last, act="Hardswish")]
    for kernel, inner, outputs, gated, act, stride in (
            (3, 16, 16, True, "ReLU", 2), (3, 72, 24, False, "ReLU", 2), (3, 88, 24, False, "ReLU", 1),
            (5, 96, 40, True, "Hardswish", 2), (5, 240, 40, True, "Hardswish", 1), (5, 120, 48, True, "Hardswish", 1),
            (5, 288, 96, True, "Hardswish", 2), (5, 576, 96, True, "Hardswish", 1)):
        gate = lib.gated(c(inner), c(inner // 4), gate="Hardsigmoid") if gated else None
        layers.append(inverted(lib, last, c(inner), c(outputs), kernel, stride, act, gate))
        last = c(outputs)
    return lib.Sequential(*layers, lib.unit(last, c(576), 1, act="Hardswish"), lib.head(c(576)))


def efficientnet(lib: Library, scale: Scale) -> Any:
    c, last = scale.channels, scale.channels(32)
    layers = [lib.unit(3, last, act="SiLU")]
    for expansion, outputs, count, kernel, stride in ((1, 16, 1, 3, 1), (6, 24, 2, 3, 2), (6, 40, 2, 5, 2), (6, 80, 3, 3, 2),
                                                      (6, 112, 3, 5, 1), (6, 192, 4, 5, 2), (6, 320, 1, 3, 1)):
        for k in range(scale.layers(count)):
            inner = last * expansion
            gate = lib.gated(inner, max(1, last // 4), "SiLU")
            layers.append(inverted(lib, last, inner, c(outputs), kernel, stride if k == 0 else 1, "SiLU", gate))
            last = c(outputs)
    return lib.Sequential(*layers, lib.head(last))


def shufflenet_v1(lib: Library, scale: Scale) -> Any:
    """Zhang et al., 2018, with two groups."""
    c, last, groups = scale.channels, scale.channels(24), 2
    layers = [lib.unit(3, last, 1)]
    for outputs, count in ((200, 4), (400, 8), (800, 4)):
        for k in range(1 + scale.layers(count)):
            total, stride = c(outputs), 2 if k == 0 else 1
            made, inner = total - last if k == 0 else total, c(outputs // 4)
            branch = lib.Sequential(lib.unit(last, inner, 1, groups=groups), lib.Shuffle(groups),
                                    lib.unit(inner, inner, 3, stride, inner), lib.unit(inner, made, 1, 1, groups, ""))
            if k == 0:
                layers += [lib.Concatenated(branch, lib.AvgPool2d(3, stride=2, padding=1)), lib.ReLU()]
            else:
                layers.append(lib.Residual(branch, after=lib.ReLU()))
            last = total
    return lib.Sequential(*layers, lib.head(last))


def shufflenet_v2(lib: Library, scale: Scale) -> Any:
    c, last = scale.channels, scale.channels(24)
    layers = [lib.unit(3, last)]
    for outputs, count in ((116, 3), (232, 7), (464, 3)):
        half = c(outputs) // 2
        layers.append(lib.Concatenated(
            lib.Sequential(lib.unit(last, last, 3, 2, last, ""), lib.unit(last, half, 1)),
            lib.Sequential(lib.unit(last, half, 1), lib.unit(half, half, 3, 2, half, ""), lib.unit(half, half, 1))))
        for _ in range(scale.layers(count)):
            layers += [lib.Shuffle(2), lib.HalfResidual(lib.Sequential(
                lib.unit(half, half, 1), lib.unit(half, half, 3, 1, half, ""), lib.unit(half, half, 1)))]
        last = 2 * half
    return lib.Sequential(*layers, lib.unit(last, c(1024), 1), lib.head(c(1024)))


def regnet_y(lib: Library, scale: Scale) -> Any:
    """Radosavovic et al., 2020: groups of eight channels, gates."""
    c, last = scale.channels, scale.channels(64)
    layers = [lib.unit(3, last)]
    for outputs, count, stride in ((24, 1, 1), (56, 1, 1), (152, 4, 2), (368, 7, 2)):
        for k in range(scale.layers(count)):
            width, step = c(outputs), stride if k == 0 else 1
            branch = lib.Sequential(lib.unit(last, width, 1), lib.unit(width, width, 3, step, width // 8),
                                    lib.gated(width, max(1, last // 4)), lib.unit(width, width, 1, act=""))
            same = step == 1 and last == width
            layers.append(lib.Residual(branch, None if same else lib.unit(last, width, 1, step, act=""), lib.ReLU()))
            last = width
    return lib.Sequential(*layers, lib.head(last))


def dpn(lib: Library, scale: Scale) -> Any:
    c, last = scale.channels, 64
    layers = [lib.unit(3, 64)]
    for inner, outputs, count, dense, stride in ((96, 256, 2, 16, 1), (192, 512, 2, 32, 2), (384, 1024, 2, 24, 2),
                                                 (768, 2048, 2, 128, 2)):
        width, added, more = c(inner), c(outputs), c(dense)
        for k in range(scale.layers(count)):
            step = stride if k == 0 else 1
            branch = lib.Sequential(lib.unit(last, width, 1), lib.unit(width, width, 3, step, width // (width // 8)),
                                    lib.unit(width, added + more, 1, act=""))
            shortcut = lib.unit(last, added + more, 1, step, act="") if k == 0 else None
            layers.append(lib.DualPath(branch, shortcut, added, lib.ReLU()))
            last = added + more * (k + 2)
    return lib.Sequential(*layers, lib.head(last))


def googlenet(lib: Library, scale: Scale) -> Any:
    """Szegedy et al., 2015, with batch norm."""
    c, last = scale.channels, scale.channels(192)
    layers = [lib.unit(3, last)]
    table = ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), None, (192, 96, 208, 16, 48, 64),
             (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64), (112, 144, 288, 32, 64, 64),
             (256, 160, 320, 32, 128, 128), None, (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128))
    for row in table:
        if row is None:
            layers.append(lib.MaxPool2d(3, stride=2, padding=1))
            continue
        one, three_in, three, five_in, five, pooled = map(c, row)
        layers.append(lib.Concatenated(
            lib.unit(last, one, 1), lib.Sequential(lib.unit(last, three_in, 1), lib.unit(three_in, three)),
            lib.Sequential(lib.unit(last, five_in, 1), lib.unit(five_in, five), lib.unit(five, five)),
            lib.Sequential(lib.MaxPool2d(3, stride=1, padding=1), lib.unit(last, pooled, 1))))
        last = one + three + five + pooled
    return lib.Sequential(*layers, lib.head(last))


def residual(lib: Library, inputs: int, outputs: int, stride: int = 1) -> Any:
    branch = lib.Sequential(lib.unit(inputs, outputs, 3, stride), lib.unit(outputs, outputs, act=""))
    same = stride == 1 and inputs == outputs
    return lib.Residual(branch, None if same else lib.unit(inputs, outputs, 1, stride, act=""), lib.ReLU())


def tree(lib: Library, inputs: int, outputs: int, level: int, stride: int) -> Any:
    left, right = ((residual(lib, inputs, outputs, stride), residual(lib, outputs, outputs)) if level == 1 else
                   (tree(lib, inputs, outputs, level - 1, stride), tree(lib, outputs, outputs, level - 1, 1)))
    return lib.Aggregated(lib.unit(2 * outputs, outputs, 1), left, right)


def dla(lib: Library, scale: Scale) -> Any:
    c, last = scale.channels, scale.channels(32)
    layers = [lib.unit(3, c(16)), lib.unit(c(16), c(16)), lib.unit(c(16), last)]
    for outputs, level, stride in ((64, 1, 1), (128, 2, 2), (256, 2, 2), (512, 1, 2)):
        layers.append(tree(lib, last, c(outputs), scale.layers(level), stride))
        last = c(outputs)
    return lib.Sequential(*layers, lib.head(last))


def densenet(lib: Library, scale: Scale) -> Any:
    """Huang et al., 2017: each layer reads what all before it gave."""
    growth = scale.channels(32)
    last, layers = 2 * growth, [lib.convolution(3, 2 * growth)]
    for k, count in enumerate((6, 12, 24, 16)):
        if k:
            layers += [lib.before(last, last // 2, 1), lib.AvgPool2d(2)]
            last //= 2
        for _ in range(scale.layers(count)):
            layer = lib.Sequential(lib.before(last, 4 * growth, 1), lib.before(4 * growth, growth))
            layers.append(lib.Concatenated(layer, lib.Identity()))
            last += growth
    return lib.Sequential(*layers, lib.BatchNorm2d(last), lib.ReLU(), lib.head(last))


def resnext(lib: Library, scale: Scale) -> Any:
    """Xie et al., 2017: 29 layers, 4 groups of 64 channels."""
    last, layers = scale.channels(64), [lib.unit(3, scale.channels(64), 1)]
    for k in range(3):
        for at in range(scale.layers(3)):
            width, stride = scale.channels(256 << k), 2 if k and at == 0 else 1
            branch = lib.Sequential(lib.unit(last, width, 1), lib.unit(width, width, 3, stride, 4),
                                    lib.unit(width, 2 * width, 1, act=""))
            same = stride == 1 and last == 2 * width
            layers.append(lib.Residual(branch, None if same else lib.unit(last, 2 * width, 1, stride, act=""), lib.ReLU()))
            last = 2 * width
    return lib.Sequential(*layers, lib.head(last))


def senet(lib: Library, scale: Scale) -> Any:
    """A residual network whose units begin with their norms, with gates."""
    last, layers = scale.channels(64), [lib.unit(3, scale.channels(64))]
    for k, outputs in enumerate((64, 128, 256, 512)):
        for at in range(scale.layers(2)):
            width, stride = scale.channels(outputs), 2 if k and at == 0 else 1
            branch = lib.Sequential(lib.before(last, width, 3, stride), lib.before(width, width),
                                    lib.gated(width, max(1, width // 16)))
            same = stride == 1 and last == width
            layers.append(lib.Residual(branch, None if same else lib.convolution(last, width, 1, stride)))
            last = width
    return lib.Sequential(*layers, lib.head(last))


IMAGE_NETWORKS: dict[str, Callable[[Library, Scale], Any]] = {
    f.__name__: f for f in (mobilenet_v2, mobilenet_v3, efficientnet, shufflenet_v1, shufflenet_v2, regnet_y, dpn, googlenet,
                            dla, densenet, resnext, senet)}
