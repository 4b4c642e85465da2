"""A step in stages: cut where it balances, and equal to the step on one device for every schedule."""

from functools import partial

import numpy as np
import pytest

import tenon as tn
from tenon import nn
from tenon.errors import DevicePlanError
from tenon.ops.collectives import all_reduce
from tenon.pipeline import compile
from tenon.pipelining.device_program import DeviceProgram
from tenon.pipelining.device_steps import Receive, Send, device_steps
from tenon.pipelining.schedules import pipeline_schedule
from tenon.pipelining.segments import segments_of
from tenon.pipelining.stages import stages_of_step
from tenon.pipelining.step_parts import parts_of_step
from tests.pipelining.steps_by_hand import captured, gpt, mlp, run_all, whole_step

BATCH = 16
interpreted = partial(compile, backend="reference")


def compare(make, name: str, devices: int, micro_batches: int, chunks: int = 1, compile=interpreted) -> None:
    graph, arrays = captured(make(), BATCH, micro_batches)
    parts = parts_of_step(graph, [0, 1])
    segments = segments_of(parts, stages_of_step(parts, devices * chunks), name == "zero_bubble")
    schedule = pipeline_schedule(name, devices, micro_batches, chunks)
    steps = device_steps(segments, schedule)
    sent = [(x.tag, x.value) for row in steps for x in row if isinstance(x, Send)]
    received = [(x.tag, x.value) for row in steps for x in row if isinstance(x, Receive)]
    assert len(sent) == len(received) and set(sent) == set(received)
    owned = [[(k, r) for k, (r, stage) in enumerate(segments.results)
              if stage is None or schedule.device_of(stage) == d] for d in range(devices)]
    programs = [DeviceProgram(graph, steps[d], [r for _, r in owned[d]], {0: 0, 1: 0}, micro_batches, compile)
                for d in range(devices)]
    found = run_all(programs, arrays)
    whole, all_arrays = whole_step(make(), BATCH)
    want = compile(whole).run(all_arrays)
    assert {k for row in owned for k, _ in row} == set(range(len(want)))
    for row, out in zip(owned, found, strict=True):
        for (k, _), array in zip(row, out, strict=True):
            np.testing.assert_allclose(array, want[k], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("name", "devices", "micro_batches", "chunks"), [
    ("gpipe", 2, 4, 1), ("1f1b", 3, 8, 1), ("zero_bubble", 4, 8, 1), ("interleaved", 2, 4, 2), ("1f1b", 1, 2, 1),
    ("gpipe", 2, 1, 1)])
def test_an_mlp_in_stages_computes_what_it_does_on_one_device(name: str, devices: int, micro_batches: int,
                                                              chunks: int) -> None:
    compare(mlp, name, devices, micro_batches, chunks)


def test_machine_code_runs_in_stages_too() -> None:
    compare(mlp, "1f1b", 2, 4, compile=compile)


@pytest.mark.parametrize(("name", "devices", "chunks"), [("1f1b", 4, 1), ("interleaved", 2, 2)])
def test_a_gpt_in_stages_computes_what_it_does_on_one_device(name: str, devices: int, chunks: int) -> None:
    compare(gpt, name, devices, 4, chunks)


def test_stages_of_a_gpt_are_balanced_and_cut_between_blocks() -> None:
    graph, _ = captured(gpt(), BATCH, 4)
    stages = stages_of_step(parts_of_step(graph, [0, 1]), 4)
    assert max(stages.work) < 1.3 * min(stages.work)
    stream = 4 * 5 * 8 * 8          # bytes of the residual stream of a micro-batch, beside which at most one more goes
    assert stages.crossing[0] == stream and max(stages.crossing) <= 2 * stream


def test_stages_begin_where_they_are_told_to() -> None:
    net = mlp()
    graph, _ = captured(net, BATCH, 4)
    second = next(k for k, p in enumerate(graph.params) if p.shape == (3, 32))
    stages = stages_of_step(parts_of_step(graph, [0, 1]), 2, begins=[second])
    first = [node for node, stage in stages.of.items() if stage == 1 and node.op.name == "matmul"]
    assert 3 in {node.output.shape[-1] for node in first}
    with pytest.raises(DevicePlanError, match="no stage can begin"):
        stages_of_step(parts_of_step(graph, [0, 1]), 3, begins=[second, second])


def test_more_stages_than_operations_are_refused() -> None:
    graph, _ = captured(mlp(), BATCH, 4)
    with pytest.raises(DevicePlanError, match="too few for 999 stages"):
        stages_of_step(parts_of_step(graph, [0, 1]), 999)


def test_what_couples_a_batch_is_refused_with_its_line() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimizer = tn.optim.SGD(net.parameters(), lr=0.1)

    @tn.jit
    def step(x):
        h = net[0](x)
        h = h - all_reduce(h.sum(0), over=("micro",)) / 8       # what a batch norm does
        loss = net[1](h).sum()
        loss.backward()
        for p in net.parameters():
            p.grad = all_reduce(p.grad, over=("micro",))
        optimizer.step()
        return all_reduce(loss.detach(), over=("micro",))
    with pytest.raises(DevicePlanError, match="couples the examples of a batch") as caught:
        parts_of_step(step.graph(tn.ones((2, 3))), [0])
    assert "what a batch norm does" in str(caught.value) and "LayerNorm" in str(caught.value)


def test_what_counts_the_whole_batch_is_known_before_it() -> None:
    """The mean over targets that are not ignored divides by a count that only all micro-batches know."""
    net = nn.Linear(3, 2).to(tn.float64)
    optimizer = tn.optim.SGD(net.parameters(), lr=0.1)

    def step(x, mask, total):
        weight = mask / total(mask.sum())
        loss = ((net(x).square().sum(1)) * weight).sum()
        loss.backward()
        for p in net.parameters():
            p.grad = total(p.grad)
        optimizer.step()
        optimizer.zero_grad()
        return total(loss.detach())
    x, mask = np.arange(24.0).reshape(8, 3) / 24, np.array([1.0, 0, 1, 1, 0, 0, 1, 0])
    local = tn.jit(lambda x, mask: step(x, mask, lambda t: all_reduce(t, over=("micro",))))
    whole = tn.jit(lambda x, mask: step(x, mask, lambda t: t))
    found = local.capture(tn.tensor(x[:2]), tn.tensor(mask[:2]))
    arrays = [np.asarray(h.payload) for h in found.inputs.holders([tn.tensor(x), tn.tensor(mask)])]
    parts = parts_of_step(found.graph, [0, 1])
    assert len(parts.first) == 1
    segments = segments_of(parts, stages_of_step(parts, 2), split_backward=False)
    schedule = pipeline_schedule("1f1b", 2, 4)
    steps = device_steps(segments, schedule)
    programs = [DeviceProgram(found.graph, steps[d], [r for r, s in segments.results if s in (None, d)],
                              {0: 0, 1: 0}, 4, interpreted) for d in range(2)]
    got = [x for row in run_all(programs, arrays) for x in row]
    want = interpreted(whole.graph(tn.tensor(x), tn.tensor(mask))).run(arrays)
    for array in want:
        assert any(array.shape == y.shape and np.allclose(array, y, rtol=1e-12) for y in got)
