"""`@tn.jit(pipeline=...)`: steps in stages equal steps on one device, call after call; and what is refused."""

from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.config import config
from tenon.errors import ArgumentError, CaptureError, DevicePlanError
from tenon.graph.build import trace
from tenon.pipelining.measure_pipeline import measure
from tenon.pipelining.pipelined import OfParts, Pipeline, Pipelined
from tenon.pipelining.simulate_schedule import theoretical_bubble
from tenon.sharding.mesh import Mesh
from tenon.sharding.sharded_array import ShardedArray
from tenon.sharding.sharding import Sharding
from tenon.types import TensorType, float32
from tests.pipelining.steps_by_hand import data_for, mlp, shallow_gpt

SETTINGS = [Pipeline(2, 4), Pipeline(3, 8, "gpipe"), Pipeline(4, 8, "zero_bubble"),
            Pipeline(2, 4, "interleaved", chunks=2), Pipeline(1, 2), Pipeline(2, 1)]


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled is interpreted."""
    monkeypatch.setenv("TENON_BACKEND", "reference")
    config.cache_clear()
    yield
    monkeypatch.undo()
    config.cache_clear()


def train(net: Any, pipeline: Pipeline | None, batches: tuple[int, ...] = (16, 16, 24, 16)) -> tuple[Any, Any]:
    """The losses of some steps, and the parameters behind them."""
    optimizer = optim.AdamW(net.parameters(), lr=0.01)

    @tn.jit(pipeline=pipeline)
    def step(x: Any, y: Any) -> Any:
        scores = net(x)
        loss = nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))
        loss.backward()
        optim.clip_grad_norm(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss
    losses = []
    for k, batch in enumerate(batches):
        x, y = data_for(net, batch)
        losses.append(float(step(tn.tensor(np.roll(x, k, 0)), tn.tensor(y))))
    return losses, [p.numpy().copy() for p in net.parameters()]


def same(one: tuple[Any, Any], other: tuple[Any, Any]) -> None:
    np.testing.assert_allclose(one[0], other[0], rtol=1e-12)
    for a, b in zip(one[1], other[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("pipeline", SETTINGS, ids=lambda p: f"{p.schedule}-{p.stages}x{p.chunks}-{p.micro_batches}")
def test_an_mlp_trains_as_on_one_device(interpreted: None, pipeline: Pipeline) -> None:
    same(train(mlp(), pipeline), train(mlp(), None))


@pytest.mark.parametrize("pipeline", SETTINGS, ids=lambda p: f"{p.schedule}-{p.stages}x{p.chunks}-{p.micro_batches}")
def test_an_uneven_batch_trains_as_on_one_device(interpreted: None, pipeline: Pipeline) -> None:
    """Batches of 10 and 13 in micro-batches: the first have one example more."""
    batches = 10, 13, pipeline.micro_batches + 1
    same(train(mlp(), pipeline, batches), train(mlp(), None, batches))


def test_an_uneven_batch_of_a_gpt(interpreted: None) -> None:
    same(train(shallow_gpt(), Pipeline(2, 4), (10, 5)), train(shallow_gpt(), None, (10, 5)))


def test_a_gpt_trains_as_on_one_device(interpreted: None) -> None:
    same(train(shallow_gpt(), Pipeline(2, 4, "zero_bubble"), (16, 16)), train(shallow_gpt(), None, (16, 16)))


class Recurrent(nn.Module):
    """Eight numbers as a sequence of four pairs; gradients of weights are summed up in a loop."""

    def __init__(self, kind: Any) -> None:
        self.first, self.last = kind(2, 6), kind(6, 5, batch_first=True)
        self.scores = nn.Linear(5, 3)

    def forward(self, x: tn.Tensor) -> Any:
        pairs = x.reshape(-1, 4, 2).permute((1, 0, 2))
        return self.scores(self.last(self.first(pairs)[0].permute((1, 0, 2)))[0][:, -1])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("batches", [(16, 16), (10, 7)], ids=str)
def test_a_recurrent_network_trains_as_on_one_device(interpreted: None, kind: Any, batches: tuple[int, ...]) -> None:
    def net() -> Any:
        tn.manual_seed(0)
        return Recurrent(kind).to(tn.float64)
    same(train(net(), Pipeline(2, 4), batches), train(net(), None, batches))


def test_an_mlp_trains_in_machine_code() -> None:
    same(train(mlp(), Pipeline(2, 4), (16, 16)), train(mlp(), None, (16, 16)))


def test_dropout_draws_what_it_draws_on_one_device(interpreted: None) -> None:
    def net() -> Any:
        tn.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3)).to(tn.float64)
    tn.manual_seed(1)
    plain = train(net(), None)
    same(train(net(), Pipeline(2, 4)), plain)
    tn.manual_seed(1)
    plain = train(net(), None, (10, 10))
    tn.manual_seed(1)
    same(train(net(), Pipeline(2, 4), (10, 10)), plain)


@pytest.mark.parametrize("size", [8, 10])
def test_targets_that_are_ignored_do_not_count(interpreted: None, size: int) -> None:
    """The mean is over those that count in the whole batch, not in each micro-batch."""
    def losses(pipeline: Pipeline | None) -> list[float]:
        net = mlp()
        optimizer = optim.SGD(net.parameters(), lr=0.1)

        @tn.jit(pipeline=pipeline)
        def step(x: Any, y: Any) -> Any:
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss
        x, y = data_for(net, size)
        y[[0, 1, 2, 6]] = -100
        return [float(step(tn.tensor(x), tn.tensor(y))) for _ in range(3)]
    np.testing.assert_allclose(losses(Pipeline(2, 4)), losses(None), rtol=1e-12)


@pytest.mark.parametrize("size", [8, 10])
def test_results_for_each_example_are_joined(interpreted: None, size: int) -> None:
    net = mlp()
    optimizer = optim.SGD(net.parameters(), lr=0.0)

    def step(x: Any, y: Any) -> Any:
        scores = net(x)
        nn.functional.cross_entropy(scores, y).backward()
        optimizer.step()
        optimizer.zero_grad()
        return scores.detach().softmax(-1), scores.detach().argmax(-1)
    x, y = map(tn.tensor, data_for(net, size))
    for one, other in zip(tn.jit(step, pipeline=Pipeline(2, 4))(x, y), step(x, y), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12)


def test_a_hint_says_where_stages_begin(interpreted: None) -> None:
    net = mlp()
    same(train(net, Pipeline(2, 4, begins=[net[2]])), train(mlp(), None))
    with pytest.raises(ArgumentError, match="reads no parameter of Linear"):
        train(net, Pipeline(2, 4, begins=[nn.Linear(1, 1)]))


def test_inference_runs_in_stages_too(interpreted: None) -> None:
    net = mlp()
    x, _ = data_for(net, 8)
    predict = tn.jit(lambda x: net(x).softmax(-1), pipeline=Pipeline(2, 4))
    with tn.no_grad():
        np.testing.assert_allclose(predict(tn.tensor(x)).numpy(), net(tn.tensor(x)).softmax(-1).numpy(), rtol=1e-12)


@pytest.mark.parametrize("size", [8, 10])
def test_rows_that_are_alike_and_need_no_example_are_made_in_every_size(interpreted: None, size: int) -> None:
    """A bias in every row, and noise of the whole batch of which micro-batches take their rows."""
    def losses(pipeline: Pipeline | None) -> list[float]:
        net, bias = mlp(), nn.Parameter(tn.ones(3, dtype=tn.float64))
        noise = tn.tensor(np.random.default_rng(0).standard_normal((size, 3)))
        optimizer = optim.SGD([*net.parameters(), bias], lr=0.1)

        @tn.jit(pipeline=pipeline)
        def step(x: Any, y: Any) -> Any:
            rows = tn.tanh(tn.zeros(x.shape[0], 3, dtype=tn.float64) + bias)
            loss = nn.functional.cross_entropy(net(x) * rows + tn.sin(noise) * bias, y) + 0.1 * (rows ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss
        x, y = map(tn.tensor, data_for(net, size))
        return [float(step(x, y)) for _ in range(3)]
    np.testing.assert_allclose(losses(Pipeline(2, 4)), losses(None), rtol=1e-12)


# ---------------------------------------------------------------- what is refused

def test_batch_norm_in_training_is_refused(interpreted: None) -> None:
    net = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).to(tn.float64)
    with pytest.raises(ArgumentError, match="couples the examples of a batch") as caught:
        train(net, Pipeline(2, 4))
    assert "scores = net(x)" in str(caught.value) and "LayerNorm" in str(caught.value)
    net.eval()
    train(net, Pipeline(2, 4))


def test_a_batch_that_does_not_divide_is_refused(interpreted: None) -> None:
    with pytest.raises(ArgumentError, match="does not divide among 4 micro-batches"):
        train(mlp(), Pipeline(2, 4), (3,))
    losses, _ = train(mlp(), Pipeline(2, 4), (8,))
    assert np.isfinite(losses).all()


def test_a_step_that_leaves_gradients_to_others_is_refused() -> None:
    net = mlp()
    x, y = map(tn.tensor, data_for(net, 8))
    step = tn.jit(lambda x, y: nn.functional.cross_entropy(net(x), y), pipeline=Pipeline(2, 4))
    with pytest.raises(CaptureError, match="whole training steps"):
        step(x, y)


def test_a_step_without_a_batch_is_refused() -> None:
    net = mlp()
    optimizer = optim.SGD(net.parameters(), lr=0.1)

    @tn.jit(pipeline=Pipeline(2, 4))
    def step() -> Any:
        loss = net(tn.ones((4, 8), dtype=tn.float64)).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()
    with pytest.raises(ArgumentError, match="no argument that holds a batch"):
        step()


@pytest.mark.parametrize("arguments", [
    {"stages": 0, "micro_batches": 2}, {"stages": 2, "micro_batches": 0}, {"stages": 2, "micro_batches": 2.0},
    {"stages": 2, "micro_batches": 2, "schedule": "1b1f"}, {"stages": 2, "micro_batches": 2, "chunks": 2},
    {"stages": 2, "micro_batches": 2, "begins": [1, 2]}])
def test_what_is_no_pipeline_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        Pipeline(**arguments)


@pytest.mark.parametrize(("batch", "said"), [({"z": 0}, "no tensor argument 'z'"), ({"x": 2}, "has no axis 2"),
                                             ({"x": 0}, "")])
def test_which_axis_holds_examples_can_be_told(interpreted: None, batch: dict[str, int], said: str) -> None:
    pipeline = Pipeline(2, 4, batch=batch)
    if said:
        with pytest.raises(ArgumentError, match=said):
            train(mlp(), pipeline)


def test_an_error_of_one_device_is_the_error_of_the_call(interpreted: None) -> None:
    """A target that is no class: the last stage finds it, while the first waits for gradients."""
    net = shallow_gpt()
    optimizer = optim.SGD(net.parameters(), lr=0.1)

    @tn.jit(pipeline=Pipeline(2, 4))
    def step(x: Any) -> Any:
        loss = net(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    x, _ = data_for(net, 8)
    before = net.words.weight.numpy().copy()
    with pytest.raises(Exception, match=r"99|index|range"):
        step(tn.tensor(np.full_like(x, 99)))
    np.testing.assert_array_equal(net.words.weight.numpy(), before)
    assert np.isfinite(float(step(tn.tensor(x))))


# ---------------------------------------------------------------- what is measured

def test_a_step_takes_about_what_theory_says_in_processor_time() -> None:
    """Each action's processor time on two threads, put in the schedule: within 10 % of half the work, and its bubble."""
    tn.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(256, 256) for _ in range(12)))
    optimizer = optim.SGD(net.parameters(), lr=0.01)

    @tn.jit(pipeline=Pipeline(2, 8))
    def step(x: Any) -> Any:
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    x = tn.tensor(np.random.default_rng(0).standard_normal((512, 256)).astype(np.float32))
    program: Any = step.capture(x).program
    assert isinstance(program, Pipelined)
    step(x)

    def ratio() -> float:
        times = measure(program, lambda: step(x)).by_processor_time
        work = sum(map(times.busy, range(2)))
        return times.seconds / (work / 2 / (1 - theoretical_bubble("1f1b", 2, 8)))
    assert 1.0 <= sorted(ratio() for _ in range(7))[3] < 1.1


def test_a_weight_that_another_function_keeps_elsewhere_is_told_with_a_way_out() -> None:
    class Program:
        graph = trace(lambda w: w * 2.0, TensorType(float32, (3,)))
        arguments = (0,)
        run = None
    away = ShardedArray((3,), float32, Sharding(Mesh({"pipe": 2}), (), (("pipe", 0),)), {})
    with pytest.raises(DevicePlanError, match=r"on device 1, and another function.*keeps it on \{'pipe': 0\}") as caught:
        OfParts(Program(), 1, [None]).run([away])           # type: ignore[arg-type]
    assert "begins=" in str(caught.value)
