"""Averages of a model's weights over steps, by the names of `torch.optim.swa_utils` (Izmailov et al. 2018; Polyak)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tenon.eager.grad_mode import no_grad
from tenon.errors import ArgumentError
from tenon.nn.module import Module
from tenon.ops.comparison import where
from tenon.ops.creation import zeros
from tenon.tensor import Tensor
from tenon.types import int64

Average = Callable[[Tensor, Tensor, Tensor], Tensor]


class AveragedModel(Module):
    """A model whose parameters are averages of those that another one had at each `update_parameters`.

    `avg_fn(averaged, new, n_averaged)` gives the next average, by default the mean of all.  With `use_buffers` buffers
    are averaged too; they are copied otherwise.  A call is one of the averaged model.

    >>> net = tn.nn.Linear(1, 1)
    >>> mean = tn.optim.swa_utils.AveragedModel(net)
    >>> for value in (1.0, 3.0):
    ...     _ = net.weight.assign(tn.full((1, 1), value))
    ...     mean.update_parameters(net)
    >>> mean.module.weight.tolist()
    [[2.0]]
    """

    def __init__(self, model: Module, avg_fn: Average | None = None, use_buffers: bool = False):
        super().__init__()
        self.module = copy.deepcopy(model)
        self.avg_fn, self.use_buffers = avg_fn or mean_of_all, use_buffers
        self.n_averaged: Tensor
        self.register_buffer("n_averaged", zeros((), dtype=int64))

    def forward(self, *args: Any, **keywords: Any) -> Any:
        """What the averaged model returns."""
        return self.module(*args, **keywords)

    def update_parameters(self, model: Module) -> None:
        """Take the parameters that a model of equal structure has now into the averages; the first time, copy them."""
        ours: dict[str, Tensor] = {**dict(self.module.named_parameters())}
        theirs: dict[str, Tensor] = {**dict(model.named_parameters())}
        if ours.keys() != theirs.keys():
            name = sorted(ours.keys() ^ theirs.keys())[0]
            raise ArgumentError(f"update_parameters: only one of the two models has a parameter {name!r}")
        copied = {} if self.use_buffers else dict(model.named_buffers())
        theirs |= dict(model.named_buffers()) if self.use_buffers else {}
        ours |= dict(self.module.named_buffers())
        with no_grad():
            first = self.n_averaged == 0
            for name, new in theirs.items():
                old, new = ours[name], new.detach()
                average = self.avg_fn(old.detach(), new, self.n_averaged).astype(old.dtype)
                old.assign(where(first, new, average))
            for name, new in copied.items():
                ours[name].assign(new)
            self.n_averaged.assign(self.n_averaged + 1)


def mean_of_all(averaged: Tensor, new: Tensor, count: Tensor) -> Tensor:
    """The mean of `count` values and a further one."""
    return averaged + (new - averaged) / (count + 1)


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """What makes an `AveragedModel` an exponential moving average.

    >>> net = tn.nn.Linear(2, 1)
    >>> ema = tn.optim.swa_utils.AveragedModel(net, avg_fn=tn.optim.swa_utils.get_ema_avg_fn(0.9))
    """
    if not 0.0 <= decay <= 1.0:
        raise ArgumentError(f"get_ema_avg_fn: decay is {decay}, not from 0 to 1")
    return lambda averaged, new, count: averaged * decay + new * (1 - decay)
