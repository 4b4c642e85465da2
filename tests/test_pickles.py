"""Pickles: tensors, modules, optimizers and generators go to other processes and come back as they are."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import time
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim


def again(x: Any) -> Any:
    return pickle.loads(pickle.dumps(x))


@pytest.mark.parametrize("dtype", [tn.float32, tn.bfloat16, tn.int64, tn.bool, tn.complex64])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_a_tensor_is_the_same(dtype: Any, shape: tuple[int, ...]) -> None:
    x = tn.ones(shape, dtype=dtype)
    assert again(x).type == x.type and np.array_equal(again(x).numpy(), x.numpy())


def test_what_asks_for_a_gradient_does_so_and_one_object_stays_one() -> None:
    w = nn.Parameter(tn.ones(2))
    a, b = again([w, w])
    assert a is b and isinstance(a, nn.Parameter) and a.requires_grad
    assert np.array_equal(again(tn.ones(3, 4).T[1:]).numpy(), np.ones((3, 3)))


@pytest.mark.parametrize("copied", [again, copy.deepcopy])
def test_a_generator_goes_on_with_the_same_numbers(copied: Any) -> None:
    g = tn.Generator(3)
    tn.rand(2, generator=g)
    h = copied(g)
    first = tn.rand(3, generator=h).numpy()
    assert np.array_equal(first, tn.rand(3, generator=g).numpy())
    assert not np.array_equal(first, tn.rand(3, generator=h).numpy())


def trained(net: Any, opt: Any) -> float:
    loss = (net(tn.ones(4, 3)) ** 2).sum()
    loss.backward()
    opt.step()
    opt.zero_grad()
    return float(loss)


def test_a_module_and_its_optimizer_train_on_together() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    opt = optim.Adam(net.parameters(), lr=0.1)
    trained(net, opt)
    other, theirs = again((net, opt))
    assert [trained(net, opt) for _ in range(3)] == [trained(other, theirs) for _ in range(3)]


def doubled(connection: Any) -> None:
    net, x = connection.recv()
    connection.send((net(x) * 2, net))


def test_another_process_takes_and_gives_tensors_and_modules() -> None:
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=doubled, args=(there,))
    process.start()
    net, x = nn.Linear(3, 2), tn.ones(4, 3)
    here.send((net, x))
    assert here.poll(120)
    found, back = here.recv()
    process.join(60)
    np.testing.assert_allclose(found.numpy(), 2 * net(x).numpy())
    np.testing.assert_allclose(back(x).numpy(), net(x).numpy())


def spawned(rank: int, results: Any, x: Any) -> None:
    results.put((rank, (x * rank).tolist()))


def one_fails(rank: int) -> None:
    if rank == 1:
        raise SystemExit(3)
    time.sleep(600)


def test_processes_are_spawned_with_their_numbers_and_one_that_fails_ends_the_others() -> None:
    results = multiprocessing.get_context("spawn").SimpleQueue()
    tn.multiprocessing.spawn(spawned, (results, tn.ones(2)), nprocs=2)
    assert sorted(results.get() for _ in range(2)) == [(0, [0.0, 0.0]), (1, [1.0, 1.0])]
    running = tn.multiprocessing.spawn(one_fails, nprocs=2, join=False)
    with pytest.raises(tn.multiprocessing.ProcessExitedException, match="process 1 ended with code 3"):
        running.join(120)
    running.processes[0].join(60)
    assert not running.processes[0].is_alive()


@tn.jit
def tripled(x: tn.Tensor) -> tn.Tensor:
    return x * 3


def halved(x: tn.Tensor) -> tn.Tensor:
    return x / 2


def test_a_jitted_function_goes_by_its_name_or_with_its_function_and_options() -> None:
    assert again(tripled) is tripled and copy.deepcopy(tripled) is tripled
    for found in (again(tn.jit(halved, fullgraph=True)), copy.copy(tn.jit(halved, fullgraph=True))):
        assert found.function is halved and found.fullgraph and found(tn.ones(2)).tolist() == [0.5, 0.5]
    layer = nn.Linear(2, 1)
    np.testing.assert_array_equal(again(tn.jit(layer))(tn.ones(2)).numpy(), layer(tn.ones(2)).numpy())
    assert copy.deepcopy(tn.jit(layer)).function is not layer
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):     # as Python says it of any lambda
        pickle.dumps(tn.jit(lambda x: x))
