"""Arrays handed over by DLPack, between NumPy, PyTorch (where it is installed) and Tenon, in every direction."""

import gc
import importlib.util
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.errors import ArgumentError, DTypeError, GradientError

CASES = {
    "f32 2d": np.arange(6, dtype=np.float32).reshape(2, 3), "f64": np.arange(3.0), "i8": np.arange(3, dtype=np.int8),
    "u8": np.arange(3, dtype=np.uint8), "i64": np.arange(3), "bool": np.array([True, False]),
    "c64": np.array([1 + 2j], np.complex64), "f16": np.arange(3, dtype=np.float16), "scalar": np.array(3.0, np.float32),
    "empty": np.zeros((0, 3), np.float32), "u16": np.arange(3, dtype=np.uint16), "ones": np.ones((1, 4, 1), np.float32),
}
OTHERS = ["numpy", *(["torch"] if importlib.util.find_spec("torch") else [])]


def other(name: str) -> tuple[Any, Any, Any]:
    """How another library makes an array, takes one by DLPack, and shows it as NumPy's."""
    if name == "numpy":
        return np.array, np.from_dlpack, np.asarray
    import torch  # heavy, and not always there
    return lambda a: torch.from_numpy(a.copy()), torch.from_dlpack, lambda t: t.numpy()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", OTHERS)
def test_every_case_goes_there_and_comes_back(name: str, case: str) -> None:
    make, take, show = other(name)
    array = CASES[case]
    np.testing.assert_array_equal(show(take(tn.tensor(array))), array)
    there = tn.from_dlpack(make(array))
    assert there.dtype.numpy == array.dtype
    np.testing.assert_array_equal(there.numpy(), array)


@pytest.mark.parametrize("name", OTHERS)
def test_memory_is_shared(name: str) -> None:
    make, take, show = other(name)
    theirs = make(np.arange(4.0))
    assert np.shares_memory(tn.from_dlpack(theirs).numpy(), show(theirs))
    ours = tn.tensor([1.0, 2.0])
    assert np.shares_memory(show(take(ours)), ours.numpy())


def test_tenon_takes_a_tensor_of_its_own() -> None:
    x = tn.arange(3)
    assert np.shares_memory(tn.from_dlpack(x).numpy(), x.numpy())


def test_copies_are_copies() -> None:
    a = np.arange(4.0)
    assert not np.shares_memory(tn.from_dlpack(a, copy=True).numpy(), a)
    x = tn.tensor([1.0, 2.0])
    assert not np.shares_memory(np.from_dlpack(x, copy=True), x.numpy())


def test_a_consumer_that_knows_of_it_gets_read_only_elements() -> None:
    x = tn.tensor([1.0, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        np.from_dlpack(x)[0] = 5.0
    assert x.tolist() == [1.0, 2.0]


def test_a_consumer_that_cannot_know_of_it_gets_a_copy() -> None:
    """Its capsules cannot be marked."""
    class Old:
        def __init__(self, x: tn.Tensor):
            self.x = x

        def __dlpack__(self, stream: None = None) -> object:
            return self.x.__dlpack__(stream=stream)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.x.__dlpack_device__()

    x = tn.tensor([1.0, 2.0])
    theirs = np.from_dlpack(Old(x))
    assert theirs.tolist() == [1.0, 2.0] and not np.shares_memory(theirs, x.numpy())
    with pytest.raises(BufferError, match="not read-only"):
        x.__dlpack__(copy=False)


def test_a_read_only_producer_is_taken() -> None:
    a = np.arange(3.0)
    a.flags.writeable = False
    assert tn.from_dlpack(a).tolist() == [0.0, 1.0, 2.0]


def test_strides_are_kept_and_negative_ones_copied() -> None:
    a = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(tn.from_dlpack(a[:, ::2]).numpy(), a[:, ::2])
    backwards = tn.asarray(a[::-1])
    for name in OTHERS:
        _, take, show = other(name)
        np.testing.assert_array_equal(show(take(backwards)), a[::-1])
    with pytest.raises(BufferError, match="backwards"):
        backwards.__dlpack__(copy=False)


def test_versions_devices_and_streams() -> None:
    x = tn.tensor([1.0])
    assert x.__dlpack_device__() == (1, 0)
    assert "versioned" in repr(x.__dlpack__(max_version=(1, 0)))
    assert "versioned" not in repr(x.__dlpack__())
    x.__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError, match="device"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ArgumentError, match="stream"):
        x.__dlpack__(stream=1)
    with pytest.raises(ArgumentError, match="no device"):
        tn.from_dlpack(x, device="gpu")


def test_what_cannot_be_taken_says_so() -> None:
    with pytest.raises(DTypeError, match="no __dlpack__"):
        tn.from_dlpack([1, 2])
    with pytest.raises(GradientError, match="detach"):
        tn.tensor([1.0], requires_grad=True).__dlpack__()
    with pytest.raises(BufferError):
        tn.from_dlpack(np.arange(3.0).astype(">f8"))


def test_the_memory_outlives_its_producer() -> None:
    x = tn.from_dlpack(np.ones(1000))
    gc.collect()
    assert x.sum().item() == 1000


def test_a_shared_tensor_does_not_follow_what_the_tensor_is_assigned() -> None:
    x = tn.tensor([1.0, 2.0])
    shared = np.from_dlpack(x)
    x += 1
    assert shared.tolist() == [1.0, 2.0] and x.tolist() == [2.0, 3.0]


@pytest.mark.skipif("torch" not in OTHERS, reason="NumPy has no bfloat16")
def test_bfloat16_crosses_without_a_copy() -> None:
    import torch  # heavy, and not always there
    theirs = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)[:, ::2]
    ours = tn.from_dlpack(theirs)
    assert ours.dtype is tn.bfloat16 and ours.tolist() == theirs.tolist()
    assert ours.numpy().ctypes.data == theirs.data_ptr()
    back = torch.from_dlpack(ours)
    assert back.dtype is torch.bfloat16 and back.data_ptr() == theirs.data_ptr() and back.tolist() == ours.tolist()


def test_bfloat16_and_unsigned_integers_are_told_apart() -> None:
    for dtype in (tn.bfloat16, tn.uint16):
        x = tn.arange(3).astype(dtype)
        for copy in (None, True):
            assert tn.from_dlpack(x, copy=copy).dtype is dtype and tn.from_dlpack(x, copy=copy).tolist() == [0, 1, 2]
    assert tn.from_dlpack(tn.zeros((0, 3), dtype=tn.bfloat16)).shape == (0, 3)
