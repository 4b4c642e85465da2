"""A state of PyTorch's optimizers to one of Tenon's.

PyTorch keeps {"state": {0: {"step": 3.0, "exp_avg": ...}}, "param_groups": [{"lr": 0.1, ..., "params": [0]}]}: all of a
parameter under its number, a count of steps each.  The names of what is kept are the same, so nothing is said here of
one optimizer or another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.errors import ArgumentError
from tenon.optim.parameter_group import ParameterGroup
from tenon.tensor import tensor

if TYPE_CHECKING:
    from tenon.optim.optimizer import Optimizer

WAYS = ("foreach", "fused", "capturable", "differentiable")     # in which PyTorch may compute the same
NOTED = ("param_names", "max_lr", "min_lr", "max_momentum", "base_momentum", "swa_lr")      # by it and by its schedules


def is_of_pytorch(state: Any) -> bool:
    """Whether this looks like a state of one of PyTorch's optimizers."""
    return isinstance(state, Mapping) and isinstance(state.get("param_groups"), (list, tuple))


def from_pytorch(optimizer: Optimizer, state: Mapping[str, Any]) -> dict[str, Any]:
    """The same in the form of `optimizer.state_dict()`; raises ArgumentError for what has no place there."""
    name, saved, kept = type(optimizer).__name__, state["param_groups"], state.get("state")
    if not isinstance(kept, Mapping) or not all(isinstance(x, Mapping) for x in (*kept.values(), *saved)):
        raise ArgumentError(f"{name}.load_state_dict: 'state' and each of 'param_groups' must be dictionaries")
    if len(saved) != len(optimizer.param_groups):
        raise ArgumentError(f"{name} has {len(optimizer.param_groups)} groups, the state has {len(saved)}")
    return {"groups": [_group(optimizer, group, options, _of_parameters(name, group, options, kept))
                       for group, options in zip(optimizer.param_groups, saved, strict=True)]}


def _of_parameters(name: str, group: ParameterGroup, options: Mapping[str, Any],
                   kept: Mapping[Any, Any]) -> list[dict[str, Any]]:
    """What the state keeps of each parameter of a group; nothing before its first step."""
    numbers = options.get("params")
    if not isinstance(numbers, (list, tuple)) or len(numbers) != len(group["params"]):
        count = len(numbers) if isinstance(numbers, (list, tuple)) else repr(numbers)
        raise ArgumentError(f"{name} has {len(group['params'])} parameters, the state {count}")
    return [{key: x for key, x in kept.get(number, {}).items() if x is not None} for number in numbers]


def _group(optimizer: Optimizer, group: ParameterGroup, options: Mapping[str, Any],
           kept: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if optimizer.is_by_user():
        own = [{key: tensor(x) if hasattr(x, "shape") else x for key, x in of.items()} for of in kept]
        return {"options": _options(group, options, {}), "slots": {}, "state": own}
    _check_names(optimizer, group, kept)
    slots = {slot: [of.get(slot, np.zeros(x.shape, x.dtype.numpy)) for of, x in zip(kept, here, strict=True)]
             for slot, here in group.slots.items()}
    counts = [_counts(optimizer, of) for of in kept]
    clocks = [x for k, x in enumerate(counts) if x not in counts[:k]]
    tensors = [{key: tensor(x, dtype=group[key].dtype) for key, x in clock.items()} for clock in clocks]
    apart = {"clocks": {"of": [clocks.index(x) for x in counts], "counts": tensors[1:]}} if len(clocks) > 1 else {}
    return {"options": _options(group, options, tensors[0]), "slots": slots, **apart}


def _check_names(optimizer: Optimizer, group: ParameterGroup, kept: Sequence[Mapping[str, Any]]) -> None:
    """Raise ArgumentError unless all that is kept of a parameter has its place, and every place a value."""
    allowed = {"step", *group.slots, *dict(optimizer.counts), *optimizer.not_kept}
    for of in kept:
        if of and not set(group.slots) <= of.keys() <= allowed:
            raise ArgumentError(f"{type(optimizer).__name__} keeps {sorted(group.slots)} of each parameter here, the "
                                f"state {sorted(map(str, of))}", hint="a state of the same optimizer fits, if such "
                                "options as momentum, amsgrad and centered are the same")


def _counts(optimizer: Optimizer, of: Mapping[str, Any]) -> dict[str, float]:
    """What goes on with the steps of a parameter; of one that only has a momentum, whether it made a step."""
    further = {key: float(of.get(key, first)) for key, first in optimizer.counts}
    return {"step": int(of.get("step", bool(of))), **further}


def _options(group: ParameterGroup, saved: Mapping[str, Any], counts: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a saved group; those that its version did not have yet are as they are here."""
    here = {key: group[key] for key in group if key != "params"}
    given = {key: x for key, x in saved.items() if key not in ("params", *WAYS, *NOTED)}
    return here | given | dict(counts)
