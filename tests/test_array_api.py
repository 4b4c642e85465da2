"""What the Array API standard asks beside operators: types, promotion, inspection, devices, signatures."""

import inspect

import numpy as np
import pytest

import tenon as tn
from tenon.errors import ArgumentError, AxisError, DTypeError, ShapeError


def test_limits_of_types() -> None:
    for name in ("float16", "float32", "float64"):
        ours, numpys = tn.finfo(getattr(tn, name)), np.finfo(name)
        assert (ours.bits, ours.eps, ours.max) == (numpys.bits, float(numpys.eps), float(numpys.max))
        for limit in ("min", "smallest_normal", "tiny", "resolution"):
            assert getattr(ours, limit) == float(getattr(numpys, limit))
    assert tn.finfo(tn.complex64).dtype is tn.float32 and tn.finfo(tn.bfloat16).eps == 2.0 ** -7
    assert (tn.iinfo(tn.uint8).min, tn.iinfo(tn.uint8).max, tn.iinfo(tn.ones(1, dtype=int)).bits) == (0, 255, 64)
    with pytest.raises(DTypeError, match="no floating type"):
        tn.finfo(tn.int8)
    with pytest.raises(DTypeError, match="no integer type"):
        tn.iinfo(tn.float32)


def test_promotion_can_be_asked_for() -> None:
    assert tn.result_type(tn.int8, tn.uint8) is tn.int16
    assert tn.result_type(tn.ones(1), 1j) is tn.complex64
    assert tn.result_type(tn.int8, 1) is tn.int8
    assert tn.can_cast(tn.int8, tn.int64) and not tn.can_cast(tn.int64, tn.int8)
    assert not tn.can_cast(tn.uint64, tn.int64)
    assert tn.isdtype(tn.complex64, "numeric") and not tn.isdtype(tn.bool, "numeric")
    with pytest.raises(ArgumentError, match="no kind"):
        tn.isdtype(tn.int8, "whole")
    with pytest.raises(ArgumentError, match="no tensors"):
        tn.result_type()


def test_the_namespace_describes_itself() -> None:
    info = tn.__array_namespace_info__()
    assert tn.ones(1).__array_namespace__() is tn
    assert info.default_dtypes()["real floating"] is tn.float32
    assert set(info.dtypes(kind="complex floating")) == {"complex64", "complex128"}
    assert info.default_device() in info.devices()


def test_there_is_one_device() -> None:
    x = tn.zeros((2,), device="cpu")
    assert x.device == "cpu" and x.to_device("cpu") is x
    for call in (lambda: tn.zeros(2, device="gpu"), lambda: x.to_device("gpu"), lambda: tn.arange(2, device="gpu"),
                 lambda: tn.asarray([1], device="gpu")):
        with pytest.raises(ArgumentError, match="there is no device"):
            call()


def test_shapes_as_numbers_as_a_tuple_and_by_name() -> None:
    assert tn.zeros(2, 3).shape == tn.zeros((2, 3)).shape == tn.zeros(shape=(2, 3)).shape == (2, 3)
    assert tn.reshape(tn.arange(6), (2, 3)).shape == tn.arange(6).reshape(2, 3).shape == (2, 3)
    assert tn.reshape(tn.arange(6), shape=(3, 2), copy=True).shape == (3, 2)


def test_operators_show_their_arguments() -> None:
    assert str(inspect.signature(tn.sum)) == "(x, axis=None, keepdims=False, dtype=None, *, initial=None, where=None)"
    assert list(inspect.signature(tn.clip).parameters) == ["x", "min", "max"]


def test_a_missing_axis_is_both_an_index_and_a_value_error() -> None:
    for kind in (IndexError, ValueError, ShapeError, AxisError):
        with pytest.raises(kind, match="out of range"):
            tn.expand_dims(tn.zeros(2), axis=3)


def test_a_list_of_one_count_repeats_every_element() -> None:
    assert tn.repeat(tn.arange(2), [2]).tolist() == [0, 0, 1, 1]
    assert tn.repeat(tn.arange(2), tn.tensor([2])).tolist() == [0, 0, 1, 1]
