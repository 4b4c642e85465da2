"""Files in the safetensors format: no damaged one is read, none is left behind, and there is always a whole one."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load as official

import tenon as tn
from tenon import tensor_file
from tenon.errors import ArgumentError

GOOD: dict[str, Any] = {"__metadata__": {"a": "b"},
                        "x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
                        "y": {"dtype": "I64", "shape": [1], "data_offsets": [24, 32]}}
DATA = bytes(32)


def file_of(header: Any, data: bytes = DATA) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def with_entry(**changes: Any) -> bytes:
    """The good file with another description of its first tensor; a change to `...` leaves the word out."""
    entry = {name: value for name, value in {**GOOD["x"], **changes}.items() if value is not ...}
    return file_of({**GOOD, "x": entry})


def damaged() -> Iterator[tuple[str, bytes]]:
    """One file of every kind that is no such file."""
    whole, text = file_of(GOOD), json.dumps(GOOD).encode()
    for size in (0, 1, 7, 8, 9, 8 + len(text) // 2, len(whole) - 33, len(whole) - 32, len(whole) - 1):
        yield f"cut off after {size} bytes", whole[:size]
    yield "longer than its tensors", whole + b"\0"
    for length in (0, 1, len(text) - 1, len(text) + 1, len(whole), 100_000_001, 2**31, 2**62, 2**63, 2**64 - 1):
        yield f"a header of {length} bytes", length.to_bytes(8, "little") + whole[8:]
    for number, other in enumerate((b"[]", b"null", b"1", b'"x"', b"{", b"{}}", b"{'x': 1}", b"{,}", b"\xff{}", b"{\xff}",
                                    b" " + text, b"\n" + text, b"\xef\xbb\xbf" + text, text + b"x", text + b"\0",
                                    b"[" * 90_000, b'{"x":' * 90_000, b'{"x": NaN}', text.decode().encode("utf-16"))):
        yield f"header {number}", file_of(other)
    yield "a name twice", file_of(text.replace(b'"y"', b'"x"'))
    one = json.dumps({"x": GOOD["x"]}).encode()
    yield "a tensor twice", file_of(b"{" + one[1:-1] + b", " + one[1:], bytes(24))
    yield "the same name twice", file_of(text.replace(b'"y": {"dtype"', b'"y": {"dtype": "I64", "dtype"'))
    yield "the same metadata twice", file_of(text.replace(b'{"a": "b"}', b'{"a": "b", "a": "c"}'))
    yield "half of a character", file_of(text.replace(b'"x"', b'"\\ud800"'))
    for metadata in ([], 1, "text", {"a": 1}, {"a": None}, {"a": {"b": "c"}}):
        yield f"metadata {metadata}", file_of({**GOOD, "__metadata__": metadata})
    for entry in (None, [], 1, "F32", {}):
        yield f"an entry {entry}", file_of({**GOOD, "x": entry})
    for word in ("dtype", "shape", "data_offsets"):
        yield f"no {word}", with_entry(**{word: ...})
        for value in (None, 1, "word", {}, [None], ["1"], [1.5], [True], [-1], [2**63], [2**64], [10**400]):
            yield f"{word} {str(value)[:30]}", with_entry(**{word: value})
    for dtype in ("f32", "F31", "", "F8_E4M3", "F8_E5M2", "F8_E8M0", "C128", "I128"):
        yield f"elements {dtype}", with_entry(dtype=dtype)
    for shape in ([2, 4], [7], [2, -3], [2, 3, 0], [2**32, 2**32], [2**62, 0], [0, 2**62], [6, 1.0], [1] * 65):
        yield f"shape {shape[:3]}", with_entry(shape=shape)
    for places in ([0], [0, 24, 24], [24, 0], [0, 23], [0, 25], [1, 25], [8, 32], [-24, 0], [0, 2**63 - 1], [0, 2**64],
                   [2**63 - 24, 2**63]):
        yield f"places {places}", with_entry(data_offsets=places)
    yield "one over the other", with_entry(data_offsets=[8, 32])
    yield "a hole", file_of({**GOOD, "y": {**GOOD["y"], "data_offsets": [32, 40]}}, bytes(40))
    yield "a hole at the beginning", file_of({"x": {**GOOD["x"], "data_offsets": [8, 32]}})
    yield "two in one place", file_of({**GOOD, "y": {"dtype": "F32", "shape": [6], "data_offsets": [0, 24]}}, bytes(24))
    yield "a boolean that is 7", file_of({"x": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}}, b"\7")


KINDS = dict(damaged())


def test_the_good_file_is_good(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(file_of(GOOD))
    assert {name: x.shape for name, x in tn.load(tmp_path / "x").items()} == {"x": (2, 3), "y": (1,)}
    assert len(KINDS) > 88


@pytest.mark.parametrize("kind", KINDS)
def test_no_damaged_file_is_read(tmp_path: Path, kind: str) -> None:
    (tmp_path / "x").write_bytes(KINDS[kind])
    with pytest.raises(ArgumentError, match="is not a safetensors file, or is damaged"):
        tn.load(tmp_path / "x")


@pytest.mark.parametrize(("name", "kind"), tensor_file.NARROW.items())
def test_numbers_of_eight_bits_are_read_as_bfloat16_which_has_all_of_them(tmp_path: Path, name: str, kind: Any) -> None:
    entry = {"dtype": name, "shape": [256], "data_offsets": [0, 256]}
    (tmp_path / "x.safetensors").write_bytes(file_of({"x": entry}, bytes(range(256))))
    wanted = np.arange(256, dtype=np.uint8).view(kind).astype(np.float64)
    for read in (tn.load, tn.load_weights):
        found = read(tmp_path / "x.safetensors")["x"]
        assert found.dtype is tn.bfloat16
        np.testing.assert_array_equal(found.numpy().astype(np.float64), wanted)


def test_elements_that_are_no_bytes_are_named(tmp_path: Path) -> None:
    entry = {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}
    (tmp_path / "x.safetensors").write_bytes(file_of({"x": entry}, bytes(1)))
    with pytest.raises(tn.errors.DTypeError, match="'x' has elements of type F4, and Tenon has no such type"):
        tn.load(tmp_path / "x.safetensors")


def test_what_is_written_others_read(tmp_path: Path) -> None:
    arrays = {"b": np.array([True, False]), "s": np.array(3, np.int8), "e": np.zeros((0, 4), np.float32), "ü": np.arange(6.0)}
    tn.save({name: tn.asarray(x) for name, x in arrays.items()}, tmp_path / "x", metadata={"k": "ö"})
    found = official((tmp_path / "x").read_bytes())
    assert all(np.array_equal(found[name], x) and found[name].dtype == x.dtype for name, x in arrays.items())


def test_mutated_files_are_refused_or_whole(tmp_path: Path, seed: int) -> None:
    """A changed byte, a piece left out or doubled: never another error; what other readers refuse is refused."""
    rng = np.random.default_rng(seed)
    net = tn.nn.Sequential(tn.nn.Linear(3, 2), tn.nn.BatchNorm1d(2))
    opt = tn.optim.Adam(net.parameters())
    tn.save({"net": net.state_dict(), "opt": opt.state_dict()}, tmp_path / "x")
    whole = (tmp_path / "x").read_bytes()
    head = 8 + int.from_bytes(whole[:8], "little")
    for turn in range(800):
        changed = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(0, head if turn % 4 else len(changed)))
            match rng.integers(0, 4):
                case 0:
                    changed[at:at + 1] = bytes([rng.integers(0, 256)])
                case 1:
                    del changed[at:at + int(rng.integers(1, 5))]
                case 2:
                    changed[at:at] = changed[at:at + int(rng.integers(1, 9))]
                case 3:
                    changed[at:at + 1] = b"0123456789[]{}\",:tfn"[rng.integers(0, 20):][:1]
        if turn % 2:
            changed[:8] = (head - 8 + len(changed) - len(whole)).to_bytes(8, "little", signed=False)
        (tmp_path / "y").write_bytes(changed)
        try:
            found = tn.load(tmp_path / "y")
        except ArgumentError:
            continue
        official(bytes(changed))        # raises where it sees a fault
        before = {name: x.tolist() for name, x in net.state_dict().items()}
        for holder, name in ((net, "net"), (opt, "opt")):
            try:
                holder.load_state_dict(found[name] if isinstance(found, dict) and name in found else found)
            except ArgumentError:
                after = {name: x.tolist() for name, x in net.state_dict().items()}
                assert name == "opt" or str(after) == str(before), "half of a state was taken over"


def test_other_readers_let_through_what_is_refused_here() -> None:
    """Which is why there is a reader here."""
    let_through = []
    for kind, content in KINDS.items():
        try:
            official(content)
            let_through.append(kind)
        except (SafetensorError, AttributeError, KeyError, ValueError):
            continue
    assert {"a tensor twice", "the same metadata twice", "header 10", "a boolean that is 7"} <= set(let_through)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.mkdir(), lambda path: path.symlink_to("/dev/zero"),
                                  lambda path: path.symlink_to("/dev/null")])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "x")
    before = time.monotonic()
    with pytest.raises(ArgumentError):
        tn.load(tmp_path / "x")
    with pytest.raises(ArgumentError):
        tn.save({"x": tn.ones(1)}, tmp_path / "x")
    assert time.monotonic() - before < 100


def test_a_file_is_read_into_as_much_memory_as_it_takes(tmp_path: Path) -> None:
    size = 16 << 20
    tn.save({"a": tn.zeros(size // 8), "b": tn.zeros(size // 8)}, tmp_path / "x")
    tracemalloc.start()
    found = tn.load(tmp_path / "x")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found["a"].shape == (size // 8,) and most < 1.2 * size


def test_threads_save_to_one_path(tmp_path: Path) -> None:
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            for _ in range(30):
                tn.save({"x": tn.full((100,), float(number))}, tmp_path / "x")
                assert len(set(tn.load(tmp_path / "x")["x"].tolist())) == 1
        except BaseException as error:
            failed.append(error)
    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failed and [x.name for x in tmp_path.iterdir()] == ["x"]


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    tn.save({"x": tn.zeros(1)}, tmp_path / "there" / "file")
    (tmp_path / "there" / "file").chmod(0o600)
    (tmp_path / "link").symlink_to(tmp_path / "there" / "file")
    tn.save({"x": tn.ones(1)}, tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and tn.load(tmp_path / "there" / "file")["x"].item() == 1
    assert (tmp_path / "there" / "file").stat().st_mode & 0o777 == 0o600
    assert [x.name for x in (tmp_path / "there").iterdir()] == ["file"]


KILLED = """
import os, sys, numpy as np, tenon as tn
from tenon import tensor_file
def parts(*_):
    yield b"half"
    print("begun", flush=True)
    sys.stdin.read()
tensor_file._parts = parts
tn.save({"x": tn.ones(1)}, sys.argv[1])
"""


def test_a_killed_save_leaves_the_file_before_and_nothing_else_for_long(tmp_path: Path) -> None:
    tn.save({"x": tn.zeros(1)}, tmp_path / "x")
    (tmp_path / ".x.notes.part").write_text("somebody else's")
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "x")], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"begun\n"
        tn.save({"x": tn.ones(1)}, tmp_path / "x")          # while the other one is at work
        assert len(list(tmp_path.iterdir())) == 3
        writer.send_signal(signal.SIGKILL)
    assert tn.load(tmp_path / "x")["x"].item() == 1
    tn.save({"x": tn.full((1,), 2.0)}, tmp_path / "x")
    assert sorted(x.name for x in tmp_path.iterdir()) == [".x.notes.part", "x"]


def test_a_save_that_fails_leaves_the_file_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tn.save({"x": tn.zeros(1)}, tmp_path / "x")

    def full(*_: Any) -> None:
        raise OSError("no space left on device")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        tn.save({"x": tn.ones(1)}, tmp_path / "x")
    assert tn.load(tmp_path / "x")["x"].item() == 0 and len(list(tmp_path.iterdir())) == 1
