"""Modules: what they hold, what they save, how they read, and what they say when something does not fit."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.types import float64, int64


class Net(nn.Module):
    def __init__(self) -> None:
        self.hidden, self.out = nn.Linear(4, 3), nn.Linear(3, 2)

    def __call__(self, x: tn.Tensor) -> tn.Tensor:
        return self.out(tn.relu(self.hidden(x)))


def test_parameters_are_found_without_super_init() -> None:
    assert [name for name, _ in Net().named_parameters()] == ["hidden.weight", "hidden.bias", "out.weight", "out.bias"]


def test_modules_in_lists_and_dicts_are_found() -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            self.blocks = [nn.Linear(2, 2), (nn.Linear(2, 1),)]
            self.heads = {"a": nn.Linear(1, 1, bias=False)}
            self.sizes = [1, 2, 3]

    names = [name for name, _ in Deep().named_parameters()]
    assert names == ["blocks.0.weight", "blocks.0.bias", "blocks.1.0.weight", "blocks.1.0.bias", "heads.a.weight"]


def test_a_shared_parameter_is_listed_once_and_saved_under_both_names() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            self.one, self.two = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
            self.two.weight = self.one.weight

    assert [name for name, _ in Tied().named_parameters()] == ["one.weight"]
    assert list(Tied().state_dict()) == ["one.weight", "two.weight"]


def test_a_module_that_points_back_to_its_parent_is_walked_once() -> None:
    net = Net()
    net.hidden.parent = net
    assert len(list(net.parameters())) == 4
    assert len(list(net.modules())) == 3
    assert list(net.state_dict()) == ["hidden.weight", "hidden.bias", "out.weight", "out.bias"]


def test_buffers_are_saved_unless_they_are_not_persistent() -> None:
    net = nn.Module()
    net.register_buffer("mean", tn.zeros(2))
    net.register_buffer("cache", tn.zeros(2), persistent=False)
    net.scratch = tn.zeros(2)
    assert [name for name, _ in net.named_buffers()] == ["mean", "cache"]
    assert list(net.state_dict()) == ["mean"]
    net.mean = tn.ones(2)
    assert net.state_dict()["mean"].tolist() == [1, 1]


def test_state_dict_round_trip() -> None:
    one, two = Net(), Net()
    x = tn.tensor(np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32))
    assert one(x).tolist() != two(x).tolist()
    assert two.load_state_dict(one.state_dict()) == ([], [])
    assert one(x).tolist() == two(x).tolist()


def test_a_state_dict_does_not_change_with_the_module() -> None:
    layer = nn.Linear(2, 2)
    before = layer.state_dict()["bias"].tolist()
    with tn.no_grad():
        layer.bias.assign(layer.bias + 1)
    saved = layer.state_dict()
    assert saved["bias"].tolist() != before
    assert not saved["bias"].requires_grad


def test_load_state_dict_says_all_that_does_not_fit_and_changes_nothing() -> None:
    layer = nn.Linear(3, 4)
    before = layer.weight.tolist()
    with pytest.raises(ArgumentError) as caught:
        layer.load_state_dict({"weight": tn.zeros(3, 4), "b": tn.zeros(4)})
    assert caught.value.what == (
        "Linear.load_state_dict: the state does not fit\n  missing: bias\n  unexpected: b\n"
        "  wrong shape: weight is f32[4, 3] here and f32[3, 4] in the state")
    assert layer.weight.tolist() == before
    assert layer.load_state_dict({"b": tn.zeros(4)}, strict=False) == (["weight", "bias"], ["b"])


def test_train_and_eval_reach_every_module() -> None:
    net = Net()
    net.eval()
    assert not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())


def test_to_converts_floating_parameters_and_buffers() -> None:
    net = Net()
    net.register_buffer("count", tn.tensor(3))
    net.register_buffer("mean", tn.zeros(2))
    weight = net.hidden.weight
    net(tn.ones(1, 4)).sum().backward()
    net.to("float64")
    assert net.hidden.weight is weight
    assert (weight.dtype, weight.grad.dtype, net.count.dtype, net.mean.dtype) == (
        float64, float64, int64, float64)
    assert net(tn.ones(1, 4, dtype="float64")).dtype is float64


def test_zero_grad_apply_and_requires_grad() -> None:
    net = Net()
    net(tn.ones(1, 4)).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    seen = []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "Linear", "Net"]
    assert not any(p.requires_grad for p in net.requires_grad_(False).parameters())


def test_a_deep_copy_is_independent() -> None:
    net = Net()
    twin = copy.deepcopy(net)
    with tn.no_grad():
        twin.hidden.bias.assign(twin.hidden.bias + 1)
    assert net.hidden.bias.tolist() != twin.hidden.bias.tolist()
    assert isinstance(twin.hidden.bias, nn.Parameter)


def test_repr_is_a_tree_with_counts_and_the_shapes_last_seen() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(6, 2), nn.LeakyReLU(0.2))
    assert repr(net).splitlines() == [
        "Sequential                           14 parameters",
        "├─ 0: Flatten                         0",
        "├─ 1: Linear(6, 2)                   14",
        "└─ 2: LeakyReLU(negative_slope=0.2)   0"]
    net(tn.ones(5, 2, 3))
    assert repr(net).splitlines()[2] == "├─ 1: Linear(6, 2)                   14  f32[5, 2]"
    assert "<td>14</td>" in net._repr_html_() and "f32[5, 2]" in net._repr_html_()


def test_containers() -> None:
    listed = nn.ModuleList([nn.Linear(1, 1)])
    listed.append(nn.ReLU())
    listed.insert(1, nn.Identity())
    del listed[0]
    assert [type(m).__name__ for m in listed] == ["Identity", "ReLU"]
    assert [name for name, _ in listed.named_children()] == ["0", "1"]
    named = nn.ModuleDict({"a": nn.Linear(1, 1, bias=False)})
    assert list(named.state_dict()) == ["a.weight"] and "a" in named
    assert len(nn.Sequential(nn.ReLU(), nn.ReLU(), nn.Tanh())[1:]) == 2
    assert list(nn.Sequential({"in": nn.Linear(1, 1, bias=False)}).state_dict()) == ["in.weight"]
    assert len(list(nn.ParameterList([nn.Parameter(tn.zeros(1))]).parameters())) == 1


def test_errors_name_the_layer() -> None:
    with pytest.raises(ArgumentError, match="Sequential holds modules, not type; ReLU is a class or function"):
        nn.Sequential(nn.Linear(1, 1), nn.ReLU)
    with pytest.raises(ArgumentError, match="Module defines neither __call__ nor forward"):
        nn.Module()(1)
    with pytest.raises(DTypeError, match="a parameter needs floating or complex elements, not int64"):
        nn.Parameter([1, 2])
    with pytest.raises(ArgumentError, match=r"Linear: in_features must be a size, not 2\.5"):
        nn.Linear(2.5, 1)
    with pytest.raises(ShapeError) as caught:
        nn.Linear(4, 3)(tn.ones(2, 3))
    assert caught.value.what == "linear: the last size of x f32[2, 3] must be the last of weight f32[3, 4]"
    with pytest.raises(ArgumentError, match="LeakyReLU: no option 'slope'"):
        nn.LeakyReLU(slope=1)
    with pytest.raises(ArgumentError, match="CrossEntropyLoss: reduction must be 'mean', 'sum' or 'none', not 'avg'"):
        nn.CrossEntropyLoss(reduction="avg")


def test_layers_show_their_options() -> None:
    shown = [nn.MaxPool2d(2), nn.AvgPool1d(3, 2, padding=1), nn.AdaptiveAvgPool2d((1, None)), nn.Dropout(0.1),
             nn.Conv2d(1, 2, 3, stride=2, bias=False), nn.BatchNorm1d(3), nn.LayerNorm((2, 3)), nn.Embedding(5, 2, 1)]
    assert [repr(layer).partition("  ")[0] for layer in shown] == [
        "MaxPool2d(2)", "AvgPool1d(3, stride=2, padding=1)", "AdaptiveAvgPool2d((1, None))", "Dropout(0.1)",
        "Conv2d(1, 2, kernel=(3, 3), stride=(2, 2), bias=False)", "BatchNorm1d(3)", "LayerNorm(2, 3)",
        "Embedding(5, 2, padding_idx=1)"]


@pytest.mark.parametrize(("make", "said"), [
    (lambda: nn.Linear(3, 4, bais=False), "Linear: no argument 'bais'.*did you mean bias"),
    (lambda: nn.LSTM(3, 4, batchfirst=True), "LSTM: no argument 'batchfirst'.*did you mean batch_first"),
    (lambda: tn.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1, momentm=0.9), "SGD: no argument.*did you mean momentum"),
    (lambda: tn.optim.Adam(nn.Linear(2, 2).parameters(), learning_rate=0.1), "Adam: no argument.*its arguments are params, lr"),
])
def test_a_misspelt_argument_is_named_with_the_nearest(make: Callable[[], object], said: str) -> None:
    with pytest.raises(TypeError, match=f"(?s){said}"):
        make()


# ---------------------------------------------------------------- what modules change of a state

class Renamed(nn.Module):
    """A weight that was once called gamma, and a note that is no tensor."""

    def __init__(self) -> None:
        self.weight, self.note = nn.Parameter(tn.ones(2)), "new"

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        return x * self.weight

    def get_extra_state(self) -> str:
        return self.note

    def set_extra_state(self, state: str) -> None:
        self.note = state

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if prefix + "gamma" in state_dict:
            state_dict[prefix + "weight"] = state_dict.pop(prefix + "gamma")
        super()._load_from_state_dict(state_dict, prefix, *args)


def test_a_module_renames_entries_of_older_states_and_keeps_extra_state() -> None:
    net = nn.Sequential(nn.Linear(2, 2), Renamed())
    state = net.state_dict()
    assert sorted(state) == ["0.bias", "0.weight", "1._extra_state", "1.weight"]
    older = {name: x for name, x in state.items() if name != "1.weight"} | {"1._extra_state": "old"}
    older["1.gamma"] = tn.tensor([2.0, 3.0])
    assert net.load_state_dict(older) == ([], [])
    assert net[1].weight.tolist() == [2, 3] and net[1].note == "old" and "1.gamma" in older
    with pytest.raises(ArgumentError, match=r"missing: 1\._extra_state"):
        net.load_state_dict({name: x for name, x in older.items() if "extra" not in name})


def test_hooks_change_a_state_as_it_is_made_and_before_it_is_taken() -> None:
    net, seen = nn.Sequential(nn.Linear(2, 1), nn.Tanh()), []

    def stripped(module: Any, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name in list(state):
            state[name.removeprefix("module.")] = state.pop(name)
    before = net.register_load_state_dict_pre_hook(stripped)
    after = net.register_load_state_dict_post_hook(lambda module, keys: (seen.append(list(keys.missing_keys)),
                                                                         keys.missing_keys.clear()))
    net.load_state_dict({"module.0.weight": tn.ones(1, 2)})     # what is missing the second hook forgives
    assert seen == [["0.bias"]] and net[0].weight.tolist() == [[1, 1]]
    before.remove(), after.remove()
    with pytest.raises(ArgumentError, match=r"missing: 0\.weight"):
        net.load_state_dict({"module.0.weight": tn.ones(1, 2)})
    net[0].register_state_dict_post_hook(lambda module, state, prefix, _: state.update({prefix + "more": tn.ones(1)}))
    assert list(net.state_dict(prefix="net.")) == ["net.0.weight", "net.0.bias", "net.0.more"]
    assert net.state_dict(keep_vars=True)["0.weight"] is net[0].weight


def test_a_state_that_is_assigned_brings_its_element_types() -> None:
    net = nn.Linear(2, 1)
    net.load_state_dict({name: x.astype("float64") for name, x in net.state_dict().items()}, assign=True)
    assert net.weight.dtype is tn.float64 and net.weight.requires_grad


@pytest.mark.parametrize("wrap", [lambda f: f, tn.jit])
def test_a_parameter_takes_attributes(wrap):
    weight = nn.Parameter(tn.ones(3))
    weight.no_decay, weight.calls = True, 0

    @wrap
    def step(x):
        weight.calls += 1
        return x * weight.detach() * weight.calls * (1 if getattr(weight, "no_decay", False) else -1)
    assert [step(tn.ones(3))[0].item() for _ in range(3)] == [1.0, 2.0, 3.0]
    weight.no_decay = False
    assert step(tn.ones(3))[0].item() == -4.0 and weight.calls == 4
    assert copy.deepcopy(weight).calls == pickle.loads(pickle.dumps(weight)).calls == 4


def test_a_state_that_is_changed_in_place_changes_the_module() -> None:
    """As means of weights are kept in PyTorch; what was a silent nothing."""
    layer = nn.Linear(2, 1)
    kept, copied, before = layer.state_dict(), copy.deepcopy(layer.state_dict()), layer.weight.numpy().copy()
    for x in layer.state_dict().values():
        x.mul_(0.5).add_(tn.ones_like(x), alpha=0.25)
    np.testing.assert_allclose(layer.weight.numpy(), before * 0.5 + 0.25)
    np.testing.assert_array_equal(kept["weight"].numpy(), before)
    copied["weight"].zero_()
    pickle.loads(pickle.dumps(kept))["weight"].zero_()
    np.testing.assert_allclose(layer.weight.numpy(), before * 0.5 + 0.25)
    assert layer.weight.requires_grad and not kept["weight"].requires_grad


def test_lists_of_modules_are_cut_joined_and_taken_from() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 3))
    tail = net[1:]
    assert list(tail.state_dict()) == ["2.weight", "2.bias"]        # as PyTorch's: a checkpoint's names stay
    last = tail.append(nn.Linear(3, 1))[-1]
    assert (len(tail), tail[1], last.weight.shape) == (3, net[2], (1, 3))
    assert [type(x).__name__ for x in net + nn.Sequential(last)] == ["Linear", "ReLU", "Linear", "Linear"]
    assert list((net + tail).state_dict())[-1] == "5.bias"
    assert net.pop(1).__class__ is nn.ReLU and list(net.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    listed = nn.ModuleList([last])
    listed += listed
    assert (len(listed), len(listed + [last]), listed.pop() is last, len(listed)) == (2, 3, True, 1)


def test_only_a_parameter_takes_the_place_of_a_parameter() -> None:
    layer = nn.Linear(3, 2)
    optimizer = tn.optim.SGD(layer.parameters(), lr=0.1)
    for wrong in (tn.zeros(2, 3), layer.weight * 2, 1.0):
        with pytest.raises(TypeError, match=r"Linear\.weight is a parameter, which .* cannot replace"):
            layer.weight = wrong
    layer.weight.data = tn.zeros(2, 3)
    assert layer.weight is optimizer.param_groups[0]["params"][0] and not layer.weight.numpy().any()
    layer.weight = nn.Parameter(tn.ones(2, 3))
    layer.bias = None
    del layer.weight
    layer.weight = tn.ones(2, 3)
    assert layer(tn.ones(1, 3)).tolist() == [[3.0, 3.0]] and not list(layer.parameters())
