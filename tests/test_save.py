"""Files: what is saved comes back, other tools read it, and damaged files are refused."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import tenon as tn
from tenon import nn, optim
from tenon.errors import ArgumentError, DTypeError
from tenon.optim.optimizer import NEWER


def test_a_module_comes_back(tmp_path: Path) -> None:
    one, two = (nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)) for _ in range(2))
    tn.save(one, tmp_path / "net.safetensors")
    two.load_state_dict(tn.load(tmp_path / "net.safetensors"))
    for name, x in one.state_dict().items():
        assert two.state_dict()[name].tolist() == x.tolist()
    assert sorted(load_file(tmp_path / "net.safetensors")) == sorted(one.state_dict())


def test_training_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    def start() -> tuple[Any, Any]:
        tn.manual_seed(0)
        net = nn.Linear(3, 1)
        return net, optim.Adam(net.parameters(), lr=0.1)

    def train(net: Any, opt: Any, steps: int) -> None:
        for _ in range(steps):
            opt.zero_grad()
            (net(tn.ones(2, 3)) ** 2).sum().backward()
            opt.step()

    net, opt = start()
    train(net, opt, 3)
    tn.save({"net": net.state_dict(), "opt": opt.state_dict(), "epoch": 3, "note": None}, tmp_path / "checkpoint")
    train(net, opt, 3)
    other, resumed = start()
    found = tn.load(tmp_path / "checkpoint")
    assert found["epoch"] == 3 and found["note"] is None
    other.load_state_dict(found["net"])
    resumed.load_state_dict(found["opt"])
    train(other, resumed, 3)
    assert other.weight.tolist() == net.weight.tolist()


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint8", "uint64", "float16", "bfloat16", "float32",
                                   "float64", "complex64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_every_type_and_shape(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    x = tn.ones(shape, dtype=dtype)
    tn.save({"x": x}, tmp_path / "x")
    back = tn.load(tmp_path / "x")["x"]
    assert back.type == x.type and back.tolist() == x.tolist()


def test_a_transposed_array_is_saved_in_order(tmp_path: Path) -> None:
    tn.save({"x": tn.arange(6).reshape(2, 3).T}, tmp_path / "x")
    assert tn.load(tmp_path / "x")["x"].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_tensors_come_back_in_the_order_in_which_they_were_given(tmp_path: Path) -> None:
    given = {"z": tn.ones(2, dtype=tn.int8), "b": tn.ones(3), "a": tn.ones(1, dtype=tn.float64), "c": tn.ones(3)}
    tn.save(given, tmp_path / "x")
    assert list(tn.load(tmp_path / "x")) == ["z", "b", "a", "c"]
    assert {name: x.shape for name, x in load_file(tmp_path / "x").items()} == {n: x.shape for n, x in given.items()}


def test_nests_and_names_that_clash(tmp_path: Path) -> None:
    nest = {"a": {"b": tn.tensor(1), "tensor": "t"}, "a.b": tn.tensor(2), "list": [1, [2.5, {"dict": True}]], "": "e"}
    tn.save(nest, tmp_path / "x")
    back = tn.load(tmp_path / "x")
    assert back["a"]["b"].item() == 1 and back["a.b"].item() == 2 and back["a"]["tensor"] == "t"
    assert back["list"] == [1, [2.5, {"dict": True}]] and back[""] == "e"
    tn.save([tn.tensor(3)], tmp_path / "x")
    assert tn.load(tmp_path / "x")[0].item() == 3


def test_files_of_other_tools_are_read(tmp_path: Path) -> None:
    save_file({"w": np.ones(2, ml_dtypes.bfloat16)}, tmp_path / "x", metadata={"format": "pt"})
    assert str(tn.load(tmp_path / "x")["w"].type) == "bf16[2]"


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    tn.save({"x": tn.ones(100)}, path)
    whole = path.read_bytes()
    header = b'{"x":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}'
    for damaged in (b"", b"\x80\x04pickle", whole[:50], whole[:-4], (2**60).to_bytes(8, "little") + whole[8:],
                    len(header).to_bytes(8, "little") + header):
        path.write_bytes(damaged)
        with pytest.raises(ArgumentError, match="is not a safetensors file, or is damaged"):
            tn.load(path)
    for structure in ("[" * 100_000, '{"tensor": "y"}', "{"):
        save_file({"x": np.ones(1)}, path, metadata={"tenon": structure})
        with pytest.raises(ArgumentError, match="has a damaged structure in its header"):
            tn.load(path)


def test_what_cannot_be_saved_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"save: object cannot be saved \(at 'a.0'\)"):
        tn.save({"a": [object()]}, tmp_path / "x")
    with pytest.raises(ArgumentError, match="save: a key of a dict must be a string, not 1"):
        tn.save({1: tn.ones(1)}, tmp_path / "x")
    with pytest.raises(DTypeError, match="'x' is complex128, which safetensors files do not hold"):
        tn.save({"x": tn.ones(1, dtype="complex128")}, tmp_path / "x")
    with pytest.raises(FileNotFoundError):
        tn.load(tmp_path / "absent")
    assert not list(tmp_path.iterdir())


def adam() -> tuple[Any, Any, dict[str, Any]]:
    """A network and an optimizer that have learned, and a state that another step gave them."""
    tn.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    opt = optim.Adam([{"params": [net[0].weight], "lr": 0.1}, {"params": [net[0].bias]}])
    for _ in range(2):
        state = {"net": net.state_dict(), "opt": opt.state_dict()}
        (net(tn.ones(4, 3)) ** 2).sum().backward()
        opt.step()
        opt.zero_grad()
    return net, opt, state


JUNK = (None, True, "x", {}, {"tensor": "x"}, [], [1, [2]], 1j, tn.zeros(3), tn.zeros(7, 7), tn.ones((), dtype="complex64"))


@pytest.mark.parametrize("junk", range(len(JUNK)))
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(junk: int) -> None:
    """Every value of a state in turn is something else, or is not there."""
    net, opt, state = adam()
    before = str(net.state_dict()), str(opt.state_dict())
    for part, holder in (("net", net), ("opt", opt)):
        for path in list(paths(state[part])):
            held = value_at(state[part], path)
            for changed in (changed_at(state[part], path, JUNK[junk]), changed_at(state[part], path)):
                if str(changed) == str(state[part]) or fits(JUNK[junk], held) or path[-1] in ("name", *NEWER):
                    continue
                with pytest.raises(ArgumentError):
                    holder.load_state_dict(changed)
                assert (str(net.state_dict()), str(opt.state_dict())) == before, path
    net.load_state_dict(state["net"])
    opt.load_state_dict(state["opt"])
    assert (str(net.state_dict()), str(opt.state_dict())) == (str(state["net"]), str(state["opt"]))


def fits(junk: Any, held: Any) -> bool:
    """A number where a number was."""
    return isinstance(junk, bool) and (isinstance(held, bool) or getattr(held, "shape", None) == ())


def paths(state: Any, so_far: tuple[Any, ...] = ()) -> Any:
    for key in (state if isinstance(state, dict) else range(len(state)) if isinstance(state, (list, tuple)) else ()):
        yield (*so_far, key)
        yield from paths(state[key], (*so_far, key))


def value_at(state: Any, path: tuple[Any, ...]) -> Any:
    return value_at(state[path[0]], path[1:]) if path else state


def changed_at(state: Any, path: tuple[Any, ...], *new: Any) -> Any:
    """The state with another value at a place; without a new one, without that place."""
    key, *rest = path
    inner = [changed_at(state[key], tuple(rest), *new)] if rest else list(new)
    if isinstance(state, dict):
        return {k: v for k, v in state.items() if k != key} | dict.fromkeys([key] * len(inner), *inner)
    return [*state[:key], *inner, *state[key + 1:]]


def test_schedules_refuse_what_is_no_state() -> None:
    opt = optim.SGD([nn.Parameter([1.0])], lr=0.1)
    for schedule in (optim.StepLR(opt, 2), optim.ReduceLROnPlateau(opt)):
        state = schedule.state_dict()
        for bad in (None, {}, [], {**state, "last_epoch": "x"}, {**state, "last_epoch": None}):
            with pytest.raises(ArgumentError):
                schedule.load_state_dict(bad)
        assert schedule.state_dict() == state
        schedule.load_state_dict(state)
