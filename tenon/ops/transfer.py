"""Values on their way between devices.

    y = to_device(x, device="cpu:1")                        # in a captured graph: the same value, there
    token = send(x, to=1, tag=0)                            # what a cut leaves on the device that has the value ...
    x, token = recv(source=0, tag=0, shape=(2, 3), dtype=float32)       # ... and on the one that reads it

`tenon.placement.cut_by_device` cuts a graph with `to_device` in graphs, one a device, before any pass runs.  On one
device it is the value itself.  `send` does not wait for whoever receives; `recv` waits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.errors import ArgumentError
from tenon.graph.op import Op
from tenon.ops.communicator import communicator
from tenon.ops.define import define
from tenon.types import TOKEN, DType, Shape, TensorType


def _to_device_type(x: TensorType, *, device: str) -> TensorType:
    if not isinstance(device, str) or not device:
        raise ArgumentError(f"to_device: a device is named by a text such as 'cpu:1', not {device!r}")
    return x


to_device: Op = define(
    "to_device", public=False, handles=True, type=_to_device_type, ref=lambda x, device: x, expand=lambda x, device: x,
    batch="front", vjp=lambda g, y, x, device: (to_device_of(g, x),),
    doc="The input on this device: what reads it is computed there.  The gradient goes back to where the input was.",
    examples=['to_device(f32[2, 3], device="cpu") -> f32[2, 3]', 'to_device(f32[2, 3], device="") -> error'])

to_device_of: Op = define(
    "to_device_of", public=False, handles=True, type=lambda x, other: x, ref=lambda x, other: x,
    expand=lambda x, other: x, batch="front", vjp=lambda g, y, x, other: (to_device_of(g, x), None),
    doc="The first input on the device of the second, whose elements are not looked at: a gradient on its way back.",
    examples=["to_device_of(f32[2, 3], f32[4]) -> f32[2, 3]"])


# ---------------------------------------------------------------- between the graphs of devices

def _send_type(x: TensorType, *, to: int, tag: int) -> TensorType:
    if x.dtype.kind in "ts":
        raise ArgumentError(f"send: a {x.dtype.name} lives in one run of one graph")
    _check_address("send", to, tag)
    return TOKEN


def _recv_type(*, source: int, tag: int, shape: Shape, dtype: DType) -> tuple[TensorType, TensorType]:
    if dtype.kind in "ts":
        raise ArgumentError(f"recv: a {dtype.name} lives in one run of one graph")
    _check_address("recv", source, tag)
    return TensorType(dtype, shape), TOKEN


def _check_address(name: str, rank: int, tag: int) -> None:
    for what, number in (("rank", rank), ("tag", tag)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ArgumentError(f"{name}: the {what} is a whole number from 0, not {number!r}")


def _send(x: Any, to: int, tag: int) -> Any:
    communicator("send").send(np.asarray(x), to, tag)
    return np.zeros((), np.bool_)


def _recv(source: int, tag: int, shape: tuple[int, ...], dtype: DType) -> Any:
    return communicator("recv").recv(shape, dtype.numpy, source, tag), np.zeros((), np.bool_)


send: Op = define(
    "send", public=False, handles=True, type=_send_type, ref=_send, effect=True,
    into=lambda outputs, x, to, tag: communicator("send").send(x, to, tag),
    doc="Give the input to the device of this rank, under this number; whoever sends goes on at once, and may write "
        "where the input lies.")

recv: Op = define(
    "recv", public=False, type=_recv_type, ref=_recv, effect=True,
    into=lambda outputs, source, tag, shape, dtype:
        communicator("recv").recv(shape, dtype.numpy, source, tag, outputs[0]),
    doc="What the device of this rank sends under this number, when it is there; what is sent first comes first.")
