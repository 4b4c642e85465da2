"""PyTorch's wrappers for several devices: DataParallel, which is the module where there are no GPUs."""

from __future__ import annotations

from typing import Any

from tenon.errors import ArgumentError
from tenon.nn.module import Module

__all__ = ["DataParallel", "DistributedDataParallel"]


class DataParallel(Module):
    """A module for all GPUs, of which there are none: it calls `module`, whose parameters are named `module.*`."""

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0):
        if device_ids:
            raise ArgumentError(f"DataParallel: there are no GPUs, devices {device_ids} were asked for")
        self.module = module

    def forward(self, *inputs: Any, **options: Any) -> Any:
        return self.module(*inputs, **options)


class DistributedDataParallel(Module):
    """Not there: gradients are summed in the graph of a step, over the devices of a mesh."""

    def __init__(self, module: Module, *_: Any, **__: Any):
        raise ArgumentError("DistributedDataParallel: a step on several devices is one graph here",
                            hint="tn.jit(step, mesh=...), see docs/distributed.md")
