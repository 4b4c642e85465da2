"""DLPack: arrays handed between libraries without a copy, here between NumPy's memory and everybody else's.

NumPy speaks the protocol; this file decides what Tenon's value semantics ask for.  A consumer that asks for DLPack 1.0
gets a capsule that is marked read-only; that of an older one cannot be marked, so it gets a copy, where NumPy refuses.
Elements that lie backwards in memory are copied, because some consumers cannot hold negative strides.  NumPy has no
bfloat16: its elements pass it as 16-bit integers, and the capsule is told what they are.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tenon.buffer_ownership import adopted, exported
from tenon.errors import ArgumentError, DTypeError
from tenon.types import bfloat16

MARKED = (1, 0)     # the first version whose capsules may be marked read-only
CPU = (1, 0)        # the device every tensor is on, as DLPack writes it
# Of a capsule by its name: where the code of its element type lies, in bytes; C lays the structures out like this.
CODE_AT = {b"dltensor": 20, b"dltensor_versioned": 52}
UNSIGNED, BFLOAT = (1, 16), (4, 16)         # code and bits of element types


def export(array: np.ndarray, stream: Any, max_version: tuple[int, int] | None, dl_device: tuple[int, int] | None,
           copy: bool | None) -> Any:
    """A capsule of the array.

    Raises ArgumentError for a stream, BufferError for another device, for an element type that DLPack as NumPy speaks
    it has no code for, and where copy=False forbids a copy that is needed.
    """
    if stream is not None:
        raise ArgumentError("__dlpack__: the CPU has no streams; pass stream=None")
    if dl_device is not None and tuple(dl_device) != CPU:
        raise BufferError(f"__dlpack__: the tensor is on device {CPU} and cannot be moved to {tuple(dl_device)}")
    if copy is False and (why := _why_copied(array, max_version)):
        raise BufferError(f"__dlpack__: {why} and cannot be shared without a copy")
    view = array.view(np.uint16) if array.dtype == bfloat16.numpy else array.view()
    if copy or _why_copied(array, max_version):
        capsule = view.copy().__dlpack__(max_version=max_version)
    else:
        exported(array)
        view.flags.writeable = False
        capsule = view.__dlpack__(max_version=max_version)
    if array.dtype == bfloat16.numpy:
        _relabel(capsule, UNSIGNED, BFLOAT)
    return capsule


def _why_copied(array: np.ndarray, max_version: tuple[int, int] | None) -> str:
    """Why a consumer of this version cannot be given the memory itself; nothing where it can."""
    if any(step < 0 for step in array.strides):
        return "the elements lie backwards in memory"
    return "" if max_version is not None and max_version >= MARKED else "a capsule before DLPack 1.0 is not read-only"


def imported(x: Any, copy: bool | None) -> np.ndarray:
    """The array of a producer; it shares the producer's memory unless `copy` or necessity says otherwise.

    Raises DTypeError for what speaks no DLPack or has elements that NumPy does not know; BufferError where copy=False
    cannot be kept.
    """
    if not hasattr(x, "__dlpack__"):
        raise DTypeError(f"from_dlpack: {type(x).__name__} has no __dlpack__",
                         hint="tn.asarray takes lists and numbers")
    passed = _Passed(x)
    try:
        array = np.from_dlpack(passed, copy=copy)
    except RuntimeError as error:       # NumPy's word for an element type or device that it does not know
        raise DTypeError(f"from_dlpack: {error}") from None
    array = array.view(bfloat16.numpy) if passed.relabelled else array
    return array if copy else adopted(array)


class _Passed:
    """A producer whose bfloat16 elements NumPy takes for integers."""

    def __init__(self, producer: Any):
        self.producer, self.relabelled = producer, False

    def __dlpack__(self, **named: Any) -> Any:
        capsule = self.producer.__dlpack__(**named)
        self.relabelled = _relabel(capsule, BFLOAT, UNSIGNED)
        return capsule

    def __dlpack_device__(self) -> Any:
        return self.producer.__dlpack_device__()


_name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))


def _relabel(capsule: Any, old: tuple[int, int], new: tuple[int, int]) -> bool:
    """Whether the elements of a fresh capsule were called `old`; then they are called `new` from now on."""
    if type(capsule).__name__ != "PyCapsule" or (name := _name_of(capsule)) not in CODE_AT:
        return False
    code = (ctypes.c_uint8 * 2).from_address(_address_of(capsule, name) + CODE_AT[name])
    if tuple(code) != old:
        return False
    code[:] = list(new)
    return True
