"""Convolutions of networks in use have their channels last where that gains more than permuting costs."""

import pytest

import tenon as tn
from tenon.graph.build import trace
from tenon.graph.ir import CONSTANTS
from tenon.passes.use_channels_last import use_channels_last
from tenon.records import replace
from tenon.types import TensorType, float32


def operators(function, *shapes):
    """Of the graph after the pass, all parameters but the first being constants."""
    graph = trace(function, *(TensorType(float32, shape) for shape in shapes))
    noted = replace(graph, notes={CONSTANTS: tuple(range(1, len(shapes)))})
    return [node.op.name for node in use_channels_last(noted).nodes]


def alone(x, w):
    return tn.conv(x, w, padding=1, groups=96)


SEPARATE = (1, 96, 14, 14), (96, 1, 3, 3)       # every channel by itself


def test_a_convolution_of_separate_channels_alone_stays_as_it_is():
    assert operators(alone, *SEPARATE) == ["conv"]


def test_between_two_that_mix_channels_it_is_turned_with_them():
    found = operators(lambda x, w, before, after: tn.conv(tn.maximum(alone(tn.conv(x, before), w), 0), after), *SEPARATE,
                      (96, 96, 1, 1), (96, 96, 1, 1))
    assert found.count("conv_channels_last") == 2 and "depthwise_channels_last" in found


@pytest.mark.parametrize(("side", "kernel", "turns"), [(56, 1, False), (14, 3, True)])
def test_one_convolution_is_turned_if_it_computes_much_for_what_it_moves(side, kernel, turns):
    found = operators(lambda x, w: tn.conv(x, w), (1, 64, side, side), (128, 64, kernel, kernel))
    assert ("conv_channels_last" in found) == turns


def test_what_is_permuted_anyway_costs_nothing():
    found = operators(lambda x, w: tn.permute(alone(tn.permute(x, (0, 3, 1, 2)), w), (0, 2, 3, 1)),
                      (1, 14, 14, 96), (96, 1, 3, 3))
    assert "depthwise_channels_last" in found


def test_each_region_decides_for_itself():
    """Two convolutions that only a sum joins."""
    found = operators(lambda x, w, v: alone(x, w).sum() + tn.conv(x, v, padding=1).sum(), *SEPARATE, (96, 96, 3, 3))
    assert sorted(name for name in found if "conv" in name or "channels" in name) == ["conv", "conv_channels_last"]


def test_a_gate_of_every_channel_is_a_small_thing_to_permute():
    """As squeeze and excitation has it: the gate depends on the call, and is broadcast over all places."""
    found = operators(lambda x, w, v: tn.conv(tn.conv(x, w) * x.mean(axis=(2, 3), keepdims=True), v),
                      (1, 64, 20, 20), (64, 64, 3, 3), (64, 64, 3, 3))
    assert found.count("conv_channels_last") == 2
