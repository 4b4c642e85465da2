"""DLPack: arrays handed between libraries without a copy, here between NumPy's memory and everybody else's.

NumPy speaks the protocol; this file decides what Tenon's value semantics ask for: capsules are marked read-only for
consumers that know of such a mark (DLPack 1.0), and elements that lie backwards in memory are copied, because some
consumers cannot hold negative strides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.errors import ArgumentError, DTypeError
from tenon.sharing import adopted, exported

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
    backwards = any(step < 0 for step in array.strides)
    if backwards and copy is False:
        raise BufferError("__dlpack__: the elements lie backwards in memory and cannot be shared without a copy")
    view = array.copy() if copy or backwards else array.view()
    if not (copy or backwards):
        exported(array)
    if max_version is None:         # before 1.0 nothing could be marked; the consumer is trusted not to write
        shown = view if view.flags.writeable else view.copy()
        return shown.__dlpack__()
    if not copy and max_version >= (1, 0):
        view.flags.writeable = False
    return view.__dlpack__(max_version=max_version)


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
