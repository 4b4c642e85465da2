"""Which memory nobody but Tenon writes to."""

import numpy as np
import pytest

import tenon as tn
from tenon import nn
from tenon.buffer_ownership import EXPORTS, is_private, watch


def payload(x):
    return x.own.payload


@pytest.mark.parametrize("make", [
    lambda a: tn.tensor(a), lambda a: tn.asarray(a.tolist()), lambda a: tn.asarray(a, dtype="float64"),
    lambda a: tn.asarray(a) + 1, lambda a: nn.Parameter(a), lambda a: tn.ones(3).T, lambda a: tn.tensor(memoryview(a))])
def test_memory_that_tenon_made_is_private(make):
    a = np.arange(3, dtype=np.float32)
    made = make(a)
    before = made.numpy().copy()
    a[:] = 7
    assert is_private(payload(made)) and np.array_equal(made.numpy(), before)


@pytest.mark.parametrize("make", [
    lambda a: tn.asarray(a), lambda a: tn.asarray(a).reshape(3, 1), lambda a: nn.Parameter(tn.asarray(a)),
    lambda a: tn.asarray(a).detach(), lambda a: tn.from_dlpack(a), lambda a: tn.asarray(memoryview(a))])
def test_memory_of_somebody_else_is_not(make):
    a = np.arange(3, dtype=np.float32)
    made = make(a)
    a[:] = 7
    assert not is_private(payload(made)) and made.numpy().ravel().tolist() == [7, 7, 7]


def test_arrays_of_a_tensor_cannot_be_written_to():
    x = tn.ones(3)
    for array in (x.numpy(), np.asarray(x)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5
    assert is_private(payload(x)) and np.array(x).flags.writeable


@pytest.mark.parametrize("version", [(1, 0), (1, 1)])
def test_memory_that_was_handed_out_is_not_private_nor_are_its_views(version):
    x, before = tn.ones(2, 3), int(EXPORTS[0])
    view = x.T
    x.__dlpack__(max_version=version)
    assert not is_private(payload(x)) and not is_private(payload(view)) and EXPORTS[0] == before
    y = tn.ones(2)
    watch(payload(y))
    y.__dlpack__(max_version=version, copy=True)
    assert is_private(payload(y)) and EXPORTS[0] == before
    y[:1].__dlpack__(max_version=version)
    assert not is_private(payload(y)) and EXPORTS[0] > before
