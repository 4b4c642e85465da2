"""ResNet: convolutions whose input is added to their output.

K. He et al., "Deep residual learning for image recognition", 2015; the stride stands in the 3x3 convolution.  Weights
have the names of torchvision's and timm's checkpoints.
"""

from __future__ import annotations

from typing import Any

from tenon.models.public_model import PublicModel
from tenon.nn.containers import Sequential
from tenon.nn.convolution import Conv2d
from tenon.nn.linear import Linear
from tenon.nn.module import Module
from tenon.nn.normalization import BatchNorm2d
from tenon.ops.activations import relu
from tenon.ops.pooling import max_pool
from tenon.ops.reduction import mean
from tenon.records import dataclass


@dataclass(frozen=True)
class ResNetConfig:
    """How many blocks each of four stages has, and of which kind."""

    layers: tuple[int, int, int, int] = (3, 4, 6, 3)
    bottleneck: bool = True
    width_per_group: int = 64
    groups: int = 1
    num_classes: int = 1000
    in_chans: int = 3


def same_size(inputs: int, outputs: int, stride: int = 1, groups: int = 1) -> Conv2d:
    """A 3x3 convolution that pads."""
    return Conv2d(inputs, outputs, 3, stride, 1, groups=groups, bias=False)


class Basic(Module):
    """Two 3x3 convolutions."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, downsample: Module | None, config: ResNetConfig):
        self.conv1, self.bn1 = same_size(inputs, width, stride), BatchNorm2d(width)
        self.conv2, self.bn2 = same_size(width, width), BatchNorm2d(width)
        self.downsample = downsample

    def forward(self, x: Any) -> Any:
        y = relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(Module):
    """A 3x3 convolution of few channels between two 1x1 convolutions."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, downsample: Module | None, config: ResNetConfig):
        inner = width * config.width_per_group // 64 * config.groups
        self.conv1, self.bn1 = Conv2d(inputs, inner, 1, bias=False), BatchNorm2d(inner)
        self.conv2, self.bn2 = same_size(inner, inner, stride, config.groups), BatchNorm2d(inner)
        self.conv3, self.bn3 = Conv2d(inner, width * 4, 1, bias=False), BatchNorm2d(width * 4)
        self.downsample = downsample

    def forward(self, x: Any) -> Any:
        y = relu(self.bn1(self.conv1(x)))
        y = relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(PublicModel):
    """Images [N, 3, H, W] to scores of classes [N, classes].

    >>> tn.models.ResNet(layers=(1, 1, 1, 1), bottleneck=False, num_classes=5).eval()(tn.zeros(1, 3, 32, 32)).shape
    (1, 5)
    """

    Config = ResNetConfig

    def build(self, config: ResNetConfig) -> None:
        self.conv1, self.bn1 = Conv2d(config.in_chans, 64, 7, 2, 3, bias=False), BatchNorm2d(64)
        kind: Any = Bottleneck if config.bottleneck else Basic
        inputs = 64
        for stage, count in enumerate(config.layers):
            width = 64 * 2 ** stage
            blocks = []
            for number in range(count):
                stride = 2 if stage and not number else 1
                changes = stride != 1 or inputs != width * kind.expansion
                shorter = Sequential(Conv2d(inputs, width * kind.expansion, 1, stride, bias=False),
                                     BatchNorm2d(width * kind.expansion)) if changes else None
                blocks.append(kind(inputs, width, stride, shorter, config))
                inputs = width * kind.expansion
            setattr(self, f"layer{stage + 1}", Sequential(*blocks))
        self.fc = Linear(inputs, config.num_classes)

    def features(self, x: Any) -> Any:
        """Images to [N, channels, H / 32, W / 32]."""
        x = max_pool(relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.layer4(self.layer3(self.layer2(self.layer1(x))))

    def forward(self, x: Any) -> Any:
        return self.fc(mean(self.features(x), axis=(2, 3)))


def resnet18(**fields: Any) -> ResNet:
    """11.7 million parameters."""
    return ResNet(ResNetConfig((2, 2, 2, 2), False), **fields)


def resnet34(**fields: Any) -> ResNet:
    """21.8 million parameters."""
    return ResNet(ResNetConfig((3, 4, 6, 3), False), **fields)


def resnet50(**fields: Any) -> ResNet:
    """25.6 million parameters."""
    return ResNet(ResNetConfig((3, 4, 6, 3), True), **fields)


def resnet101(**fields: Any) -> ResNet:
    """44.5 million parameters."""
    return ResNet(ResNetConfig((3, 4, 23, 3), True), **fields)
