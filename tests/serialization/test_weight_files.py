"""Weights from files of other programs: shards with an index, PyTorch's checkpoints, names that differ."""

import json
import struct
import time
from pathlib import Path

import numpy as np
import pytest

import tenon as tn
from tenon import nn
from tenon.errors import ArgumentError


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def sharded(folder: Path, state: dict[str, tn.Tensor]) -> Path:
    """The state in two files with an index, as large public checkpoints are."""
    names, places = list(state), {}
    for k, part in enumerate((names[:3], names[3:])):
        file = f"model-{k + 1:05}-of-00002.safetensors"
        tn.save({name: state[name] for name in part}, folder / file)
        places |= dict.fromkeys(part, file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    return index


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(np.array_equal(x.numpy(), y.numpy()) for x, y in zip(a.state_dict().values(), b.state_dict().values()))


def test_shards_are_loaded_by_their_index_or_folder(tmp_path: Path) -> None:
    ours = net()
    index = sharded(tmp_path, ours.state_dict())
    for path in (index, str(index), tmp_path):
        theirs = net()
        assert theirs.load_state_dict(tn.load_weights(path) if path is not tmp_path else tn.load_weights(index)) == ([], [])
        assert same(ours, theirs)
    assert set(tn.load_weights(tmp_path)) == set(ours.state_dict())


def test_names_are_mapped_and_parts_reported(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    tn.save({"fc.weight": tn.ones(2, 3), "fc.bias": tn.zeros(2), "head": tn.ones(1)}, path)
    layer = nn.Linear(3, 2)
    assert layer.load_state_dict(tn.load_weights(path, names={"fc.weight": "weight", "fc.bias": None}), strict=False) \
        == (["bias"], ["head"])
    assert layer.weight.tolist() == [[1.0] * 3] * 2
    found = tn.load_weights(path, names=lambda name: None if name == "head" else name[3:], dtype="bf16")
    assert found["weight"].dtype is tn.bfloat16 and nn.Linear(3, 2).load_state_dict(found) == ([], [])
    with pytest.raises(ArgumentError, match="two tensors are called 'w'"):
        tn.load_weights(path, names=lambda name: "w")


def test_elements_stay_in_the_file_and_training_changes_the_copy_only(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    tn.save({"weight": tn.ones(2, 3), "bias": tn.zeros(2)}, path)
    before, layer = path.read_bytes(), nn.Linear(3, 2)
    layer.load_state_dict(tn.load_weights(path))
    opt = tn.optim.SGD(layer.parameters(), lr=0.1)

    @tn.jit
    def step(x: tn.Tensor) -> tn.Tensor:
        loss = (layer(x) ** 2).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss
    losses = [step(tn.ones(1, 3)).item() for _ in range(3)]
    assert losses[0] == 9.0 and losses[2] < losses[1] < 9.0
    assert path.read_bytes() == before


def test_two_gigabytes_are_there_at_once(tmp_path: Path) -> None:
    path, count = tmp_path / "large.safetensors", 1 << 29
    header = json.dumps({"w": {"dtype": "F32", "shape": [count], "data_offsets": [0, 4 * count]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 4 * count)      # a hole: it takes no room on the disk

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    start, at = resident(), time.process_time()
    w = tn.load_weights(path)["w"]
    assert w.shape == (count,) and w[count - 1].item() == 0.0
    assert time.process_time() - at < 1 and resident() - start < 50e6


def test_what_is_odd_in_a_file_is_read_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "odd.safetensors"
    state = {"a": tn.ones(3, dtype="bf16"), "b": tn.arange(3).astype("f32"), "m": tn.tensor([True, False]),
             "none": tn.zeros(0, 4), "one": tn.tensor(2.0)}
    body, entries = b"", {}
    for name, x in state.items():       # in an order in which b does not lie at a multiple of four
        raw = x.numpy().tobytes()
        kind = {"bfloat16": "BF16", "float32": "F32", "bool": "BOOL"}[x.dtype.name]
        entries[name] = {"dtype": kind, "shape": list(x.shape), "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    header = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + body)
    found = tn.load_weights(path)
    assert {name: (x.dtype, x.tolist()) for name, x in found.items()} == {n: (x.dtype, x.tolist()) for n, x in state.items()}


@pytest.mark.parametrize("places, message", [
    ({"w": "../other.safetensors"}, "no file beside it"), ({"w": "/etc/passwd"}, "no file beside it"),
    ({"w": ".."}, "no file beside it"), ({"w": ""}, "no file beside it"), ({"w": "a.safetensors"}, "does not hold w"),
    ({"v": "none.safetensors"}, "there is no file"), ({"w": 3}, "names no files"), ([1], "names no files"), (None, "index"),
])
def test_an_index_that_is_wrong_is_refused(places: object, message: str, tmp_path: Path) -> None:
    tn.save({"v": tn.ones(1)}, tmp_path / "a.safetensors")
    index = tmp_path / "x.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places} if places is not None else []))
    with pytest.raises(ArgumentError, match=message):
        tn.load_weights(index)


def test_what_is_no_file_of_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"not a file of tensors")
    (tmp_path / "b.safetensors").write_bytes(b"")
    for path, message in ((tmp_path / "a.safetensors", "damaged"), (tmp_path / "b.safetensors", "damaged"),
                          (tmp_path / "none", "there is no file"), (tmp_path, "say which one"), (3, "a path was expected")):
        with pytest.raises(ArgumentError, match=message):
            tn.load_weights(path)


def test_what_pytorch_holds_otherwise_is_converted_or_refused_with_what_to_write(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.tensor([0.5, 448.0]).to(torch.float8_e4m3fn)}, tmp_path / "narrow.pt")
    torch.save({"w": torch.eye(3).to_sparse()}, tmp_path / "sparse.pt")
    for read in (tn.load, tn.load_weights):
        assert (x := read(tmp_path / "narrow.pt")["w"]).dtype is tn.bfloat16 and x.tolist() == [0.5, 448.0]
        with pytest.raises(ArgumentError, match=r"(?s)float32\[3, 3\] of PyTorch, sparse_coo.*hint: save x.to_dense\(\)"):
            read(tmp_path / "sparse.pt")


def test_checkpoints_of_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    torch.save(theirs.state_dict(), tmp_path / "plain.pth")
    torch.save({"epoch": 3, "state_dict": theirs.bfloat16().state_dict()}, tmp_path / "run.pt")
    torch.save(theirs.state_dict(), tmp_path / "old.bin", _use_new_zipfile_serialization=False)
    for name in ("plain.pth", "run.pt", "old.bin"):
        ours = net()
        ours.load_state_dict(tn.load_weights(tmp_path / name))
        wanted = theirs.state_dict()["0.weight"].float().numpy()
        np.testing.assert_allclose(ours[0].weight.numpy(), wanted, rtol=1e-2)
        assert ours[0].weight.dtype is tn.float32
    torch.save(torch.nn.Linear(1, 1), tmp_path / "module.pt")       # a pickle of code
    torch.save({"epoch": 3}, tmp_path / "nothing.pt")
    (tmp_path / "text.pt").write_text("hello")
    for name, message in (("module.pt", "cannot read"), ("nothing.pt", "holds no weights"), ("text.pt", "cannot read")):
        with pytest.raises(ArgumentError, match=message):
            tn.load_weights(tmp_path / name)
