"""In how many forms the weights of a network in use are kept: the user's own, and panels where they pay."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn
from tenon.runtime import buffer_pool


def in_use(net: Any) -> Any:
    @tn.jit
    def call(x: Any) -> Any:
        with tn.no_grad():
            return net(x)
    return call


def trained(*layers: Any) -> Any:
    """A network whose running statistics are no round numbers."""
    net = nn.Sequential(*layers)
    for norm in (x for x in layers if isinstance(x, nn.BatchNorm2d)):
        with tn.no_grad():
            norm.running_mean.assign(tn.rand(*norm.running_mean.shape))
            norm.running_var.assign(tn.rand(*norm.running_var.shape) + 0.5)
    return net.eval()


class Repeated(nn.Module):
    """The same layer several times, in a loop of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(200, 200)

    def forward(self, x: Any) -> Any:
        return tn.fori_loop(0, x.shape[0], lambda k, x: tn.tanh(self.layer(x) * 2), x)


class Twice(nn.Module):
    """A weight that is a factor, and is read beside."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(tn.rand(64, 64))

    def forward(self, x: Any) -> Any:
        w = tn.exp(self.weight)
        return x @ w + w


NETS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "convolutions": (lambda: trained(nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                                     nn.Conv2d(64, 128, 1, bias=False), nn.BatchNorm2d(128), nn.ReLU(),
                                     nn.Conv2d(128, 128, 3, stride=2, bias=False), nn.BatchNorm2d(128)), (1, 3, 14, 14)),
    "groups": (lambda: trained(nn.Conv2d(32, 32, 3, groups=32), nn.BatchNorm2d(32), nn.Conv2d(32, 64, 3, groups=2),
                               nn.BatchNorm2d(64)), (2, 32, 9, 9)),
    "one dimension": (lambda: trained(nn.Conv1d(16, 96, 5), nn.ReLU(), nn.Conv1d(96, 64, 1)), (2, 16, 30)),
    "few rows": (lambda: trained(nn.Linear(300, 500), nn.GELU(), nn.Linear(500, 300), nn.LayerNorm(300)), (8, 300)),
    "many rows": (lambda: trained(nn.Linear(300, 500), nn.GELU(), nn.Linear(500, 300)), (200, 300)),
    "a loop": (Repeated, (5, 200)),
    "read twice": (Twice, (64, 64)),
}


def made_for(name: str) -> tuple[Any, Any, Any]:
    tn.manual_seed(0)
    make, shape = NETS[name]
    net, x = make(), tn.rand(*shape)
    call = in_use(net)
    call(x)
    return net, x, call


@pytest.mark.parametrize("name", NETS)
def test_what_stands_for_packed_weights_is_not_read(name: str) -> None:
    net, x, call = made_for(name)
    before = call(x).numpy()
    program = call.capture(x).program
    first, ready = len(program.ready.parts.reads), program.ready
    for k in program.late.unread:
        if k >= first:
            ready.made[k - first].reshape(-1).view(np.uint8)[:] = 255       # nan
    for _ in range(4):
        assert call(x).numpy().tobytes() == before.tobytes()
    np.testing.assert_allclose(before, net(x).numpy(), rtol=1e-3, atol=1e-4)


def kept(call: Any, x: Any) -> int:
    """The bytes of what was made of weights."""
    program = call.capture(x).program
    first, ready = len(program.ready.parts.reads), program.ready
    return sum(array.nbytes for k, array in enumerate(ready.made, first) if k not in program.late.unread)


def test_folded_and_packed_weights_are_kept_once() -> None:
    net, x, call = made_for("convolutions")
    weights = sum(p.size * 4 for p in net.parameters())
    assert 0.9 * weights < kept(call, x) < 1.25 * weights


def test_weights_of_products_with_many_rows_are_read_where_they_are() -> None:
    _, x, call = made_for("many rows")
    assert kept(call, x) < 10_000
    net, x, call = made_for("few rows")
    assert kept(call, x) > 0.9 * sum(p.size * 4 for p in net.parameters())


@pytest.mark.parametrize("name", NETS)
def test_a_weight_that_changes_is_packed_anew(name: str) -> None:
    net, x, call = made_for(name)
    for factor in (0.5, -1.0, 3.0):
        with tn.no_grad():
            for p in net.parameters():
                p.assign(p * factor)
        for _ in range(3):
            np.testing.assert_allclose(call(x).numpy(), net(x).numpy(), rtol=1e-3, atol=1e-3)


def test_nothing_that_was_only_packed_waits_to_be_used_again() -> None:
    tn.manual_seed(0)
    net = trained(nn.Conv2d(512, 2048, 3, padding=1, bias=False), nn.BatchNorm2d(2048))
    x, call = tn.rand(1, 512, 5, 5), in_use(net)
    call(x)
    assert kept(call, x) < 1.25 * 512 * 2048 * 9 * 4
    assert sum(size * len(blocks) for size, blocks in buffer_pool._idle.items()) < 1 << 20
