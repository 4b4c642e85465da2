"""Training steps with loops and branches, on one device or a mesh: what tests of meshes compare.

    PYTHONPATH=.:tests python tests/looping_steps.py            # all of them, on every mesh
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tenon as tn
from tenon import nn, optim
from tenon.distributed.shard import gather, shard
from tenon.sharding.mesh import Mesh

MESHES = [Mesh({"data": 2}), Mesh({"data": 3}), Mesh({"data": 2, "model": 2}), Mesh({"data": 5}),
          Mesh({"data": 2, "model": 3}), Mesh({"data": 8}), Mesh({"data": 4, "model": 2}),
          Mesh({"data": 2, "model": 2, "sequence": 2})]
Made = tuple[Callable[..., Any], tuple[Any, ...], Sequence[Any]]       # loss, its arguments, parameters


def rows(*shape: int) -> Any:
    return tn.randn(*shape, dtype=tn.float64)


def weight(*shape: int) -> Any:
    return nn.Parameter(rows(*shape) * 0.4)


def split(x: Any, mesh: Mesh | None, *axes: int | None) -> Any:
    """The value split over the mesh axes of these numbers, where there are such."""
    if mesh is None:
        return x
    names = [*mesh.axes, None, None]
    return shard(x, mesh, tuple(None if k is None else names[k] for k in axes))


def transposing(mesh: Mesh | None) -> Made:
    """Carried as rows, then as columns: no fixed point but the whole."""
    w = weight(6, 6)

    def loss(x: Any) -> Any:
        x = split(x, mesh, 0)
        h, _ = tn.scan(lambda h, t: (tn.tanh(h.T @ w + t), h.sum()), x, tn.arange(5, dtype=tn.float64) * 0.1)
        return (h * x).mean()
    return loss, (rows(6, 6),), [w]


def nested(mesh: Mesh | None) -> Made:
    """A loop and a branch in a loop, whose conditions are sums over all devices."""
    w = weight(5, 5)

    def loss(x: Any) -> Any:
        def turn(h: Any, t: Any) -> Any:
            h, _ = tn.while_loop(lambda s: ((s[0] ** 2).sum() > 0.5) & (s[1] < 3),
                                 lambda s: (tn.tanh(s[0] @ w) + 0.1 * t, s[1] + 1), (h, 0))
            h = tn.cond(h.sum() > 0, lambda: h * 1.1, lambda: h - 0.2)
            return h, (h ** 2).sum()
        h, sums = tn.scan(turn, split(x, mesh, 0, 1), tn.arange(4, dtype=tn.float64))
        return (h ** 2).mean() + sums.mean()
    return loss, (rows(7, 5),), [w]


def largest(mesh: Mesh | None) -> Made:
    """A largest part is no term of a sum: what is carried beside the sum is made whole in every round."""
    w = weight(4, 6)

    def loss(x: Any) -> Any:
        x = split(x, mesh, 0, 1)

        def turn(state: Any, t: Any) -> Any:
            z = x @ w * t
            return (tn.maximum(state[0], z.max()), state[1] + z.mean(0)), z.argmax()
        start = tn.tensor(-1e9, dtype=tn.float64), tn.zeros(6, dtype=tn.float64)
        (most, total), places = tn.scan(turn, start, tn.arange(4, dtype=tn.float64) - 1.5)
        return most + (total ** 2).sum() + places.sum() * 0.001
    return loss, (rows(7, 4),), [w]


def unlike_branches(mesh: Mesh | None) -> Made:
    """Branches whose results come out split, as a sum of parts, and whole."""
    w, v = weight(4, 6), weight(6, 4)
    if mesh is not None:
        shard(w, mesh, (None, mesh.axes[-1]))
        shard(v, mesh, (mesh.axes[-1], None))

    def loss(x: Any, y: Any, k: Any) -> Any:
        x = split(x, mesh, 0)
        h = tn.relu(x @ w) @ v if x.sum() > 0 else tn.ones_like(x) * v.sum()
        h = tn.switch(k, [lambda: h * 2, lambda: h.flip(0), lambda: h - h.mean(0)])
        return ((h - y) ** 2).mean()
    return loss, (rows(7, 4), rows(7, 4), tn.tensor(1)), [w, v]


def greedy(mesh: Mesh | None) -> Made:
    """Tokens that are the largest of logits, of weights split over what is looked up and what is chosen from."""
    table, w = weight(11, 6), weight(6, 11)
    if mesh is not None:
        shard(table, mesh, (mesh.axes[-1], None))
        shard(w, mesh, (None, mesh.axes[-1]))

    def loss(t: Any) -> Any:
        t = split(t, mesh, 0)

        def turn(token: Any, _: Any) -> Any:
            logits = table[token] @ w
            return logits.argmax(-1), nn.cross_entropy(logits, t[:, 0])
        token, losses = tn.scan(turn, t[:, 0], tn.arange(5))
        last, n = t[:, 1], 0
        while (last != 3).any() & (n < 4):
            last, n = (table[last] @ w).argmax(-1), n + 1
        return losses.mean() + nn.cross_entropy(table[token] @ w, last)
    return loss, (tn.randint(0, 11, (7, 3)),), [table, w]


def written(mesh: Mesh | None) -> Made:
    """Rows of a buffer that a loop of Python fills, until a sum is large."""
    w = weight(4, 4)

    def loss(x: Any, n: Any) -> Any:
        h, out = split(x, mesh, 0), tn.zeros(6, 7, 4, dtype=tn.float64)
        for k in range(n):
            h = tn.sin(h @ w)
            out[k] = h
            if (out ** 2).sum() > 9:
                break
        return (out ** 2).mean()
    return loss, (rows(7, 4), tn.tensor(4)), [w]


def inner_descent(mesh: Mesh | None) -> Made:
    """Steps of descent in a loop, through which the gradient goes."""
    w = weight(4, 1)

    def loss(x: Any, y: Any) -> Any:
        x, y = split(x, mesh, 0), split(y, mesh, 0)

        def error(w: Any) -> Any:
            return ((x @ w - y) ** 2).mean()
        found, errors = tn.scan(lambda w, _: (w - 0.1 * tn.grad(error)(w), error(w)), w * 1.0, tn.arange(4))
        return error(found) + errors[-1]
    return loss, (rows(7, 4), rows(7, 1)), [w]


def noisy(mesh: Mesh | None) -> Made:
    """Dropout in every round: the numbers of one device."""
    w, drop = weight(4, 4), nn.Dropout(0.3)

    def loss(x: Any) -> Any:
        h, sums = tn.scan(lambda h, _: (drop(tn.tanh(h @ w)), h.sum()), split(x, mesh, 0), tn.arange(3))
        return (h ** 2).mean() + sums.mean() * 0.1
    return loss, (rows(7, 4),), [w]


STEPS = [transposing, nested, largest, unlike_branches, greedy, written, inner_descent, noisy]


def trained(build: Callable[[Mesh | None], Made], mesh: Mesh | None, steps: int = 4) -> tuple[list[float], list[Any]]:
    """The losses, and the parameters after the last step."""
    tn.manual_seed(0)
    loss, given, params = build(mesh)
    optimizer = optim.SGD(params, lr=0.05)

    @tn.jit(mesh=mesh)
    def step(*given: Any) -> Any:
        found = loss(*given)
        found.backward()
        optimizer.step()
        optimizer.zero_grad()
        return found
    losses = [float(step(*given)) for _ in range(steps)]
    return losses, [np.asarray((p if mesh is None else gather(p)).detach().numpy()) for p in params]


def compare(build: Callable[[Mesh | None], Made], mesh: Mesh) -> None:
    """Raises where a mesh has other numbers than one device."""
    expected, found = trained(build, None), trained(build, mesh)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-11, err_msg=f"{build} {mesh}")
    for a, b in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12, err_msg=f"{build} {mesh}")


if __name__ == "__main__":
    for build in STEPS:
        for mesh in MESHES:
            compare(build, mesh)
