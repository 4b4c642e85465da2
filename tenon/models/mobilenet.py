"""MobileNetV2: narrow layers joined by wide ones whose convolutions keep channels apart.

M. Sandler et al., "MobileNetV2", 2018.  Weights have the names of torchvision's checkpoints.
"""

from __future__ import annotations

from typing import Any

from tenon.models.public_model import PublicModel
from tenon.nn.activations import ReLU6
from tenon.nn.containers import Sequential
from tenon.nn.convolution import Conv2d
from tenon.nn.dropout import Dropout
from tenon.nn.linear import Linear
from tenon.nn.module import Module
from tenon.nn.normalization import BatchNorm2d
from tenon.ops.reduction import mean
from tenon.records import dataclass

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


@dataclass(frozen=True)
class MobileNetV2Config:
    """A factor for all widths; stages of (how much wider inside, channels, blocks, stride of the first)."""

    num_classes: int = 1000
    width_mult: float = 1.0
    round_nearest: int = 8
    dropout: float = 0.2
    stages: tuple[tuple[int, int, int, int], ...] = STAGES

    def channels(self, wanted: int) -> int:
        """A width times the factor, rounded, but not by more than a tenth down."""
        exact, step = wanted * self.width_mult, self.round_nearest
        rounded = max(step, int(exact + step / 2) // step * step)
        return rounded + step if rounded < 0.9 * exact else rounded


def layer(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> Sequential:
    """A convolution, normalised and cut to lie between 0 and 6."""
    return Sequential(Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), BatchNorm2d(outputs),
                      ReLU6())


class InvertedResidual(Module):
    """Wider, filtered channel by channel, narrower; its input is added where it has the same shape."""

    def __init__(self, inputs: int, outputs: int, stride: int, factor: int):
        wide = inputs * factor
        widened = [layer(inputs, wide, 1)] if factor != 1 else []
        self.conv = Sequential(*widened, layer(wide, wide, 3, stride, wide), Conv2d(wide, outputs, 1, bias=False),
                               BatchNorm2d(outputs))
        self.added = stride == 1 and inputs == outputs

    def forward(self, x: Any) -> Any:
        return x + self.conv(x) if self.added else self.conv(x)


class MobileNetV2(PublicModel):
    """Images [N, 3, H, W] to scores of classes [N, classes].

    >>> tn.models.MobileNetV2(num_classes=5, width_mult=0.1).eval()(tn.zeros(1, 3, 32, 32)).shape
    (1, 5)
    """

    Config = MobileNetV2Config

    def build(self, config: MobileNetV2Config) -> None:
        inputs = config.channels(32)
        blocks: list[Module] = [layer(3, inputs, 3, 2)]
        for factor, channels, count, stride in config.stages:
            for k in range(count):
                outputs = config.channels(channels)
                blocks.append(InvertedResidual(inputs, outputs, 1 if k else stride, factor))
                inputs = outputs
        last = max(1280, config.channels(1280)) if config.width_mult > 1 else 1280
        self.features = Sequential(*blocks, layer(inputs, last, 1))
        self.classifier = Sequential(Dropout(config.dropout), Linear(last, config.num_classes))

    def forward(self, x: Any) -> Any:
        return self.classifier(mean(self.features(x), axis=(2, 3)))
