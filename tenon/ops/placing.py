"""Tensors that functions make -> the same where the caller wants them: `tn.zeros(3, device="cpu:1")`."""

from __future__ import annotations

from typing import Any

from tenon.devices import HOST, check_device
from tenon.ops.transfer import to_device, to_device_of

MOVES = (to_device, to_device_of)       # what says by itself where its result is


def on_device(x: Any, device: Any) -> Any:
    """`x` on a device; as it is where none is named, or it is there.  Raises ArgumentError for what is no device."""
    wanted = check_device(device)
    if wanted is None or wanted == getattr(x, "device", HOST):
        return x
    return to_device(x, device=str(wanted))


def made_on_device(x: Any, device: Any, requires_grad: bool) -> Any:
    """The same of a tensor that nobody else has, which may want a gradient there."""
    x = x if device is None else on_device(x, device)
    return x.requires_grad_() if requires_grad else x
