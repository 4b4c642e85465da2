"""DLPack: arrays handed between libraries without a copy, here between NumPy's memory and everybody else's.

NumPy speaks the protocol; this file decides what Tenon's value semantics ask for.  A consumer that asks for DLPack 1.0
gets a capsule that is marked read-only; that of an older one cannot be marked, so it gets a copy, where NumPy refuses.
Elements that lie backwards in memory are copied, because some consumers cannot hold negative strides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.errors import ArgumentError, DTypeError
from tenon.sharing import adopted, exported

MARKED = (1, 0)     # the first version whose capsules may be marked read-only
CPU = (1, 0)        # the device every tensor is on, as DLPack writes it


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
    if copy or _why_copied(array, max_version):
        return array.copy().__dlpack__(max_version=max_version)
    exported(array)
    view = array.view()
    view.flags.writeable = False
    return view.__dlpack__(max_version=max_version)


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
    try:
        array = np.from_dlpack(x, copy=copy)
    except RuntimeError as error:       # NumPy's word for an element type or device that it does not know
        raise DTypeError(f"from_dlpack: {error}") from None
    return array if copy else adopted(array)
