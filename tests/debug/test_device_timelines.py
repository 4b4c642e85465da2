"""What devices do, drawn: of a jitted function that was cut by cost."""

import json
from pathlib import Path
from typing import Any

import pytest

import tenon as tn
from tenon.debug.image_files import HAVE_MATPLOTLIB
from tenon.errors import ArgumentError
from tenon.placement import place_costs
from tenon.placement.place_costs import Rates
from tenon.placement.placed_program import PlacedProgram


def branches(x: Any) -> Any:
    total = x
    for k in range(3):
        y = x * (k + 1.0)
        for _ in range(6):
            y = tn.tanh(y @ x)
        total = total + y
    return total


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The function on two devices, whatever else the machine does."""
    monkeypatch.setattr(place_costs, "_measured", [Rates()])
    return tn.jit(branches, place=("cpu", "cpu:1"))


def test_a_jitted_function_is_placed_by_cost_and_says_what_each_device_does(placed: Any, tmp_path: Path) -> None:
    x = tn.full((64, 64), 0.01)
    assert float(placed(x).sum()) == pytest.approx(float(branches(x).sum()), rel=1e-4)
    assert isinstance(placed.capture(x).program, PlacedProgram)
    timelines = tn.debug.device_timelines(placed, x)
    lines = str(timelines).splitlines()
    assert lines[0].startswith("planned: ") and lines[3].startswith("measured: ")
    assert [line.split()[0] for line in lines] == ["planned:", "cpu", "cpu:1", "measured:", "cpu", "cpu:1"]
    timelines.save_trace(tmp_path / "step.json")
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1} and {event["tid"] for event in events if "tid" in event} == {0, 1}
    starts, ends = ([event for event in events if event["ph"] == ph] for ph in ("s", "f"))
    assert len(starts) == len(ends) == 2, "arrows of messages, planned and measured"
    assert all(one["tid"] != other["tid"] and one["ts"] <= other["ts"] for one, other in zip(starts, ends, strict=True))
    drawn = timelines.save_png(tmp_path / "step.png")
    assert (drawn is not None) == HAVE_MATPLOTLIB
    assert drawn is None or drawn.read_bytes().startswith(b"\x89PNG")


def test_training_steps_are_placed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward, backward and update of two towers, on two devices: the same numbers as on one."""
    monkeypatch.setattr(place_costs, "_measured", [Rates(message=0.0, byte=0.0, threads=2)])

    def train(place: Any) -> list[float]:
        tn.manual_seed(0)
        towers = [tn.nn.Sequential(tn.nn.Linear(16, 32), tn.nn.ReLU(), tn.nn.Linear(32, 4)) for _ in range(2)]
        opt = tn.optim.SGD([p for tower in towers for p in tower.parameters()], lr=0.1)

        def step(x: Any, y: Any) -> Any:
            loss = ((towers[0](x) + towers[1](x * 2.0) - y) ** 2).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss
        jitted = tn.jit(step, place=place, fullgraph=True)
        x, y = tn.rand(8, 16), tn.rand(8, 4)
        losses = [float(jitted(x, y)) for _ in range(5)]
        assert isinstance(jitted.capture(x, y).program, PlacedProgram) == (place is not None)
        return losses
    found, expected = train(("cpu", "cpu:1")), train(None)
    assert found == pytest.approx(expected, rel=1e-5) and found[-1] < found[0]


def test_what_runs_on_one_device_and_what_is_not_jitted_are_refused() -> None:
    x = tn.ones(3)
    with pytest.raises(ArgumentError, match="runs on one device"):
        tn.debug.device_timelines(tn.jit(lambda x: x * 2), x)
    with pytest.raises(ArgumentError, match=r"takes a function with @tn\.jit"):
        tn.debug.device_timelines(branches, x)


@pytest.mark.parametrize("place", ["cpu:1", (), ("cpu", "cpu"), (1, 2)])
def test_wrong_devices_are_refused(place: Any) -> None:
    with pytest.raises(ArgumentError, match="place is"):
        tn.jit(branches, place=place)


def test_place_auto_gives_the_same_numbers() -> None:
    x = tn.full((16, 16), 0.1)
    assert float(tn.jit(branches, place="auto")(x).sum()) == pytest.approx(float(branches(x).sum()), rel=1e-5)


def test_weights_from_outside_are_placed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place_costs, "_measured", [Rates()])
    weights = [tn.full((64, 64), 0.01 * k) for k in (1, 2)]

    def towers(x: Any) -> Any:
        first = second = x
        for _ in range(8):
            first, second = tn.tanh(first @ weights[0]), tn.tanh(second @ weights[1])
        return first + second
    jitted, x = tn.jit(towers, place=("cpu", "cpu:1")), tn.full((64, 64), 0.5)
    assert float(jitted(x).sum()) == pytest.approx(float(towers(x).sum()), rel=1e-4)
    assert isinstance(jitted.capture(x).program, PlacedProgram)


def test_a_step_on_a_mesh_has_a_track_a_rank(tmp_path: Path) -> None:
    tn.set_devices(2)
    mesh = tn.distributed.Mesh({"data": 2})
    x = tn.distributed.shard(tn.ones((8, 16)), mesh, ("data", None))
    f = tn.jit(lambda x: tn.tanh(x).sum(), mesh=mesh)
    timelines = tn.debug.device_timelines(f, x)
    lines = str(timelines).splitlines()
    assert timelines.planned is None and [line.split("  |")[0].strip() for line in lines[1:]] == [
        "rank 0 {'data': 0}", "rank 1 {'data': 1}"], lines
    assert any(span.name == "start_sum" for span in timelines.measured.spans)
