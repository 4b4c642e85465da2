"""Averages of a model's weights over steps, by the names of `torch.optim.swa_utils` (Izmailov et al. 2018; Polyak)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

from tenon.eager.grad_mode import no_grad
from tenon.errors import ArgumentError
from tenon.nn.module import Module
from tenon.nn.normalization import _BatchNorm
from tenon.ops.comparison import where
from tenon.ops.creation import zeros
from tenon.optim.cyclic_lr import for_groups
from tenon.optim.learning_rates import Schedule
from tenon.optim.optimizer import Optimizer
from tenon.tensor import Tensor
from tenon.types import int64

Average = Callable[[Tensor, Tensor, Tensor], Tensor]
ManyAverages = Callable[[list[Tensor], list[Tensor], Tensor], None]         # written over the first ones


class AveragedModel(Module):
    """A model whose parameters are averages of those that another one had at each `update_parameters`.

    `avg_fn(averaged, new, n_averaged)` gives the next average, by default the mean of all.  With `use_buffers` buffers
    are averaged too; they are copied otherwise.  A call is one of the averaged model.  `multi_avg_fn` is given lists of
    all averages and all new values, and changes the averages.

    >>> net = tn.nn.Linear(1, 1)
    >>> mean = tn.optim.swa_utils.AveragedModel(net)
    >>> for value in (1.0, 3.0):
    ...     _ = net.weight.assign(tn.full((1, 1), value))
    ...     mean.update_parameters(net)
    >>> mean.module.weight.tolist()
    [[2.0]]
    """

    def __init__(self, model: Module, device: Any = None, avg_fn: Average | None = None,
                 multi_avg_fn: ManyAverages | None = None, use_buffers: bool = False):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ArgumentError("AveragedModel: give either avg_fn or multi_avg_fn")
        self.module = copy.deepcopy(model).to(device=device)
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn or mean_of_all, multi_avg_fn, use_buffers
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
            old, new = [ours[name] for name in theirs], [x.detach() for x in theirs.values()]
            for held, value, mean in zip(old, new, self._averages(old, new), strict=True):
                held.assign(where(first, value, mean.astype(held.dtype)))
            for name, buffer in copied.items():
                ours[name].assign(buffer)
            self.n_averaged.assign(self.n_averaged + 1)

    def _averages(self, old: list[Tensor], new: list[Tensor]) -> list[Tensor]:
        averages: list[Tensor] = [x.detach() for x in old]
        if self.multi_avg_fn is None:
            return [self.avg_fn(a, b, self.n_averaged) for a, b in zip(averages, new, strict=True)]
        self.multi_avg_fn(averages, new, self.n_averaged)
        return averages


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


def get_swa_avg_fn() -> Average:
    """The mean of all, which an `AveragedModel` takes by itself."""
    return mean_of_all


def get_ema_multi_avg_fn(decay: float = 0.999) -> ManyAverages:
    """As `get_ema_avg_fn`, of lists."""
    return _of_lists(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> ManyAverages:
    """As `get_swa_avg_fn`, of lists."""
    return _of_lists(mean_of_all)


def _of_lists(average: Average) -> ManyAverages:
    def write(averaged: list[Tensor], new: list[Tensor], count: Tensor) -> None:
        averaged[:] = [average(a, b, count) for a, b in zip(averaged, new, strict=True)]
    return write


class SWALR(Schedule):
    """From the learning rate now to `swa_lr` in `anneal_epochs` steps, along a cosine or a line; constant behind.

    >>> opt = tn.optim.SGD([tn.nn.Parameter(tn.ones(1))], lr=1.0)
    >>> schedule = tn.optim.swa_utils.SWALR(opt, swa_lr=0.5, anneal_epochs=2, anneal_strategy="linear")
    >>> schedule.step(); schedule.get_last_lr()
    [0.75]
    """

    def __init__(self, optimizer: Optimizer, swa_lr: Any, anneal_epochs: int = 10, anneal_strategy: str = "cos",
                 last_epoch: int = -1):
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(f"SWALR: anneal_strategy must be 'cos' or 'linear', not {anneal_strategy!r}")
        self.swa_lrs, self.anneal_epochs = for_groups(optimizer, "SWALR", swa_lr), anneal_epochs
        self.cosine = anneal_strategy == "cos"
        super().__init__(optimizer, last_epoch)

    def _share(self, steps: int) -> float:
        share = min(1.0, max(0.0, steps / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * share)) / 2 if self.cosine else share

    def get_lr(self) -> list[float]:
        steps = max(self.last_epoch, 1 - bool(self.anneal_epochs))
        before, now, rates = self._share(steps - 1), self._share(steps), []
        for group, end in zip(self.optimizer.param_groups, self.swa_lrs, strict=True):
            rate = float(group["lr"].item())        # another schedule may have set it
            start = end if before == 1 else (rate - before * end) / (1 - before)
            rates.append(end * now + start * (1 - now))
        return rates


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Let the statistics of all batch norms be the means over the batches of a loader (the first part of each)."""
    norms = [x for x in model.modules() if isinstance(x, _BatchNorm)]
    if not norms:
        return
    kept, training = [x.momentum for x in norms], model.training
    for x in norms:
        x.reset_running_stats()
        x.momentum = None
    model.train()
    try:
        with no_grad():
            for batch in loader:
                model((batch[0] if isinstance(batch, (list, tuple)) else batch).to(device=device))
    finally:
        for x, momentum in zip(norms, kept, strict=True):
            x.momentum = momentum
        model.train(training)
