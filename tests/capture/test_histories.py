"""What a function prolongs at every call, and reads, is left to Python: few captures, the results of eager code."""

import collections
import statistics
from types import SimpleNamespace

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim

CALLS = 12


def same(function):
    """The function itself, in the place of `tn.jit`."""
    return function


def counted(program):
    """What a program gives at each call, eagerly and jitted, and the most captures of any function or piece."""
    found, made = [], []

    def jit(function):
        made.append(tn.jit(function))
        return made[-1]
    for wrap in (same, jit):
        tn.manual_seed(0)
        call = program(wrap)
        found.append([repr(call(tn.tensor([1.0 + k % 3, 2.0]), k)) for k in range(CALLS)])
    pieces = [x for jitted in made for x in jitted.with_pieces()]
    return *found, max(sum(len(r.captures) for r in x.records.values()) for x in pieces)


class Trainer:
    def __init__(self):
        self.w = nn.Parameter([1.0, 2.0])
        self.opt = optim.SGD([self.w], lr=0.25)
        self.losses, self.window, self.log = [], collections.deque(maxlen=3), ""
        self.history = collections.defaultdict(list)

    def train(self, x):
        loss = (self.w * x).sum()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss


def mean_of_a_list(jit):
    t = Trainer()

    @jit
    def step(x):
        loss = t.train(x)
        t.losses.append(loss.item())
        return sum(t.losses) / len(t.losses)
    return lambda x, k: (step(x), t.losses)


def mean_of_a_window(jit):
    t = Trainer()

    @jit
    def step(x):
        loss = t.train(x)
        t.window.append(float(loss))
        t.mean = sum(t.window) / len(t.window)
        return loss.detach()
    return lambda x, k: (step(x), t.mean, t.window)


def dictionary_of_histories(jit):
    t = Trainer()

    @jit
    def step(x):
        t.history["loss"].append(t.train(x).item())
        t.history["mean"].append(sum(t.history["loss"][-4:]) / 4)
        return t.history["mean"][-1]
    return lambda x, k: (step(x), dict(t.history))


def history_among_the_arguments(jit):
    t, history = Trainer(), {"loss": [], "step": []}

    @jit
    def step(x, history, k):
        loss = t.train(x)
        history["loss"].append(loss.item())
        history["step"].append(k)
        return loss.detach()
    return lambda x, k: (step(x, history, k), history)


def text_that_grows(jit):
    t = Trainer()

    @jit
    def step(x):
        loss = t.train(x)
        t.log += f"{loss.item():.2f}\n"
        return loss.detach()
    return lambda x, k: (step(x), t.log)


def list_of_another_function(jit):
    class Meter:
        def __init__(self):
            self.values = {}

        def add(self, name, value):
            self.values.setdefault(name, []).append(value)

        def mean(self, name):
            return sum(self.values[name]) / len(self.values[name])
    meter, t = Meter(), Trainer()

    @jit
    def step(x):
        loss = t.train(x)
        meter.add("loss", loss.item())
        meter.add("size", x.sum().item())
        return meter.mean("loss"), meter.mean("size")
    return lambda x, k: (step(x), meter.values)


def tensors_that_are_stacked(jit):
    kept = []

    @jit
    def step(x):
        kept.append(x * 2)
        return tn.stack(kept).mean(axis=0)
    return lambda x, k: step(x)


def list_that_is_emptied(jit):
    t, epochs = Trainer(), []

    @jit
    def step(x):
        t.losses.append(t.train(x).item())
        if len(t.losses) == 4:
            epochs.append(sum(t.losses) / 4)
            t.losses.clear()
        return x * 2
    return lambda x, k: (step(x), t.losses, epochs)


def functions_of_libraries(jit):
    t = Trainer()

    @jit
    def step(x):
        t.losses.append(t.train(x).item())
        return statistics.mean(t.losses), float(np.mean(t.losses)), max(t.losses)
    return lambda x, k: step(x)


def list_in_a_namespace(jit):
    state, t = SimpleNamespace(losses=[], seen=[]), Trainer()

    @jit
    def step(x):
        state.losses.append(t.train(x).item())
        state.seen.append(x.shape[0])
        return sum(state.losses)
    return lambda x, k: (step(x), state)


def dictionary_by_step(jit):
    t, by_step = Trainer(), {}

    @jit
    def step(x, k):
        by_step[k] = t.train(x).item()
        return x * 2
    return lambda x, k: (step(x, k), by_step)


PROGRAMS = (mean_of_a_list, mean_of_a_window, dictionary_of_histories, history_among_the_arguments, text_that_grows,
            list_of_another_function, tensors_that_are_stacked, list_that_is_emptied, functions_of_libraries,
            list_in_a_namespace, dictionary_by_step)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda x: x.__name__)
def test_what_grows_at_every_call(program):
    eager, jitted, captures = counted(program)
    assert jitted == eager
    assert captures <= 2


def test_what_is_only_appended_to_is_in_the_one_graph():
    t = Trainer()

    @tn.jit
    def step(x):
        loss = t.train(x)
        t.losses.append(loss.item())
        t.history["loss"].append(loss.item())
        return loss.detach()
    for k in range(CALLS):
        step(tn.tensor([float(k), 1.0]))
    assert not step.is_split and len(t.losses) == len(t.history["loss"]) == CALLS
    assert sum(len(record.captures) for record in step.records.values()) <= 2


def test_a_list_that_is_filled_once_does_not_split_a_function():
    states = []

    @tn.jit
    def step(x):
        if not states:
            states.append(tn.zeros(2))
        states[0] = states[0] * 0.5 + x
        return states[0]
    for _ in range(CALLS):
        got = step(tn.tensor([1.0, 2.0]))
    assert not step.is_split and got.tolist() == [(2 - 0.5 ** (CALLS - 1)) * k for k in (1.0, 2.0)]


def test_a_function_that_has_to_be_one_graph_is_captured_again():
    losses = []

    @tn.jit(fullgraph=True)
    def step(x):
        losses.append(x.sum().item())
        return sum(losses)
    assert [step(tn.tensor([1.0])) for _ in range(4)] == [1.0, 2.0, 3.0, 4.0]
    assert not step.is_split


def test_one_item_that_changes_is_no_history():
    held, numbers = {"h": tn.zeros(2)}, {"n": 1.5}

    @tn.jit
    def step(x):
        held["h"] = held["h"] * 0.5 + x
        numbers["n"] = numbers["n"] * 0.5 + 1
        return held["h"] * numbers["n"]
    found = [step(tn.ones(2)).tolist()[0] for _ in range(5)]
    assert found == pytest.approx([1.75, 2.8125, 3.390625, 3.69140625, 3.8447265625], rel=1e-6)
    assert str(tn.explain(step)).splitlines()[0] == "step: 2 captures"


def test_a_list_that_names_made_up_may_read():
    class Logged:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, instance, owner=None):
            return getattr(instance, self.name, 0)

        def __set__(self, instance, value):
            instance.log.append(self.name)
            setattr(instance, self.name, value)

    class Box:
        rate = Logged()

        def __init__(self):
            self.log = []
    eager, box = Box(), Box()

    def step(box, x):
        box.rate += 1.0
        return x * box.rate
    jitted, x = tn.jit(step), tn.tensor([1.0, 2.0])
    for _ in range(CALLS):
        assert repr(jitted(box, x)) == repr(step(eager, x))
    assert vars(box) == vars(eager)
    (record,) = jitted.records.values()
    assert not record.captures and "log is longer" in record.eager.what


def test_a_text_that_is_replaced_is_no_history():
    class Machine:
        def __init__(self):
            self.state, self.after = "idle", {("idle", "go"): "run", ("run", "go"): "fast", ("fast", "stop"): "idle"}

        def fire(self, event):
            self.state = self.after.get((self.state, event), self.state)
            return {"idle": 0.0, "run": 1.0, "fast": 2.0}[self.state]
    eager, machine = Machine(), Machine()
    jitted, x = tn.jit(lambda x, event: x * machine.fire(event)), tn.tensor([1.0, 2.0])
    for event in ["go", "go", "stop"] * 5:
        assert jitted(x, event).tolist() == (x * eager.fire(event)).tolist() and machine.state == eager.state
    assert all(r.eager is None for r in jitted.records.values())
    assert sum(len(r.captures) for r in jitted.records.values()) <= 4
