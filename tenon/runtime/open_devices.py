"""The name of a device -> its runtime: memory and queue, opened when it is first asked for.

    opened(Device("cpu:1"))         # the logical device of number 1
    opened(Device("mine"))          # what the backend of that name opens
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tenon.devices import Device, add_kind
from tenon.errors import ArgumentError
from tenon.locks import Lock
from tenon.program.backend_interface import Backend, Buffer, DeviceRuntime
from tenon.runtime.host_device import HostDevice

_openers: dict[str, Callable[[int], DeviceRuntime]] = {"cpu": HostDevice}
_opened: dict[Device, DeviceRuntime] = {}
_opening = Lock()


def opened(device: Device) -> DeviceRuntime:
    """The runtime of a device.  Raises ArgumentError where its backend is gone."""
    found = _opened.get(device)
    if found is None:
        with _opening:
            if device not in _opened:
                if device.type not in _openers:
                    raise ArgumentError(f"the device {device} is there no more: its backend was taken away")
                _opened[device] = _openers[device.type](device.index or 0)
            found = _opened[device]
    return found


def add_devices(backend: Backend) -> None:
    """Have the devices that a backend has, under its name."""
    if backend.devices:
        assert backend.open is not None
        _openers[backend.name] = backend.open
        add_kind(backend.name, backend.devices)


def remove_devices(name: str) -> None:
    """Have the devices of a backend no more; tensors that are there can still be read."""
    add_kind(name, 0)
    _openers.pop(name, None)
    for device in [d for d in _opened if d.type == name]:
        del _opened[device]


def brought(array: np.ndarray, runtime: DeviceRuntime) -> Buffer:
    """A buffer of a device with the elements of an array."""
    buffer = runtime.allocate(array.shape, array.dtype)
    runtime.write(array, buffer).wait()
    return buffer


def fetched(buffer: Buffer, runtime: DeviceRuntime) -> np.ndarray:
    """The elements of a buffer of a device, behind all that it was given to do."""
    if isinstance(buffer, np.ndarray):
        return buffer
    array = np.empty(buffer.shape, buffer.dtype)
    runtime.read(buffer, array).wait()
    return array
