"""The parameters of an optimizer that share options, and what it keeps of each of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.devices import HOST, Device
from tenon.eager.on_mesh import OnMesh
from tenon.tensor import Tensor, tensor
from tenon.types import float64, int64


class ParameterGroup(dict[str, Any]):
    """The options of some parameters.

    Setting a number where a tensor is held changes that tensor's value.  Reading gives what it is now, as a tensor that
    stays so: rates that are noted down at every epoch differ.
    """

    def __init__(self, options: Mapping[str, Any], slots: Iterable[str]):
        params = list(options["params"])
        super().__init__(options, params=params)
        if "lr" in options:         # which an optimizer of a user's may do without
            super().__setitem__("lr", tensor(float(options["lr"]), dtype=float64, device=HOST))
        super().__setitem__("step", tensor(0, dtype=int64, device=HOST))
        self.slots: dict[str, list[Tensor]] = {}
        self.clock_of: tuple[int, ...] | None = None    # parameter by parameter, where not all have made the same steps
        self.clocks: list[dict[str, Tensor]] = []       # the counts of those that have made fewer, from 1 on
        self.make_slots(slots)

    def make_slots(self, slots: Iterable[str]) -> None:
        """Zeros for each parameter under these names, where there are none yet."""
        for name in slots:
            if name not in self.slots:
                self.slots[name] = list(map(_zeros_beside, self["params"]))

    def held(self, name: str) -> Any:
        """An option as it is held: a tensor whose value changes."""
        return super().__getitem__(name)

    def __getitem__(self, name: str) -> Any:
        return as_it_is(super().__getitem__(name))

    def get(self, name: str, default: Any = None) -> Any:
        """An option as it is now, or the default where there is none."""
        return as_it_is(super().get(name, default))

    def __setitem__(self, name: str, value: Any) -> None:
        held = super().get(name)
        if isinstance(held, Tensor):
            held.assign(value)
            return
        super().__setitem__(name, value)

    def tick(self, present: Collection[int], by_data: Sequence[Collection[int]]) -> list[ParameterGroup]:
        """Count a step of the parameters that have a gradient; the group as those of each clock need it.

        A parameter without one makes no step: what is corrected by the number of steps is its own affair.  Those of
        which the data decide have clocks apart, which count where that is known.
        """
        count = len(self["params"])
        decided = {k for run in by_data for k in run}
        still = set(range(count)) - set(present)
        if self.clock_of is None and ((still and present) or 0 < len(decided) < count or len(by_data) > 1):
            self.clock_of = (0,) * count
        for some in (still, *by_data) if self.clock_of else ():
            self._set_apart(some)
        groups = [self, *map(self._counted_by, self.clocks)]
        of = self.clock_of or (0,) * count
        for clock in sorted({of[k] for k in present if k not in decided}):
            groups[clock].count()
        return groups

    def count(self) -> None:
        """One step more."""
        self.held("step").assign(self["step"] + 1)

    def _set_apart(self, some: Collection[int]) -> None:
        """Let no clock count for these parameters and for others."""
        of = self.clock_of or ()
        for clock in sorted({of[k] for k in some}):
            members = {k for k, c in enumerate(of) if c == clock}
            if not members <= set(some):
                counts = self if clock == 0 else self.clocks[clock - 1]
                self.clocks.append({name: dict.__getitem__(counts, name) + 0 for name in self._counts()})
                self.clock_of = of = tuple(len(self.clocks) if k in members and k in some else c
                                           for k, c in enumerate(of))

    def steps_of(self, k: int) -> Tensor:
        """The tensor that counts the steps of a parameter."""
        clock = self.clock_of[k] if self.clock_of else 0
        found: Tensor = self.clocks[clock - 1]["step"] if clock else self.held("step")
        return found

    def _counts(self) -> list[str]:
        """The scalars that go on with every step."""
        return [name for name, x in self.items() if isinstance(x, Tensor) and name != "lr"]

    def clocks_apart(self) -> dict[str, Any]:
        """Which clock counts each parameter's steps, and the counts of all but the first."""
        return {"of": list(self.clock_of or ()),
                "counts": [{name: x.detach() for name, x in clock.items()} for clock in self.clocks]}

    def set_clocks(self, saved: Mapping[str, Any] | None) -> None:
        """The same from a state; one clock for all without it."""
        counts = [] if saved is None else saved["counts"]
        if len(counts) != len(self.clocks):
            self.clocks = [{name: x + 0 for name, x in clock.items()} for clock in counts]
        else:
            for clock, new in zip(self.clocks, counts, strict=True):
                for name, x in clock.items():
                    x.assign(new[name])
        self.clock_of = None if saved is None else tuple(saved["of"])

    def are_clocks(self, saved: Any) -> bool:
        """Whether this part of a state fits."""
        if not isinstance(saved, Mapping) or not all(isinstance(saved.get(x), (list, tuple)) for x in ("of", "counts")):
            return False
        kinds = {name: dict.__getitem__(self, name).type for name in self._counts()}
        return (len(saved["of"]) == len(self["params"])
                and all(type(c) is int and 0 <= c <= len(saved["counts"]) for c in saved["of"])
                and all(isinstance(x, Mapping) and {n: getattr(y, "type", None) for n, y in x.items()} == kinds
                        for x in saved["counts"]))

    def _counted_by(self, clock: Mapping[str, Tensor]) -> ParameterGroup:
        there = ParameterGroup.__new__(ParameterGroup)
        dict.update(there, self, **clock)
        there.slots, there.clock_of, there.clocks = self.slots, None, []
        return there

    def on(self, device: Device) -> ParameterGroup:
        """The group as parameters on a device need it: its scalars are there."""
        there = ParameterGroup.__new__(ParameterGroup)
        dict.update(there, {name: value if name == "params" else there_of(value, device)
                            for name, value in self.items()})
        there.slots, there.clock_of, there.clocks = self.slots, None, []
        return there


def as_it_is(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


class ParameterStates(dict[Tensor, dict[str, Any]]):
    """What is kept of each parameter, by name: the slots and the step count, and what a subclass puts there."""

    def __init__(self, groups: Sequence[ParameterGroup]):
        self.groups = groups

    def __missing__(self, p: Tensor) -> dict[str, Any]:
        places = ((group, k) for group in self.groups for k, x in enumerate(group["params"]) if x is p)
        group, k = next(places, (None, 0))
        slots = {} if group is None else {name: kept[k] for name, kept in group.slots.items()}
        self[p] = {"step": group.steps_of(k), **slots} if group is not None and slots else {}
        return self[p]

    def count_by(self, group: ParameterGroup) -> None:
        """Some parameters of the group have a clock of their own by now."""
        for k, p in enumerate(group["params"]):
            if p in self and "step" in self[p] and group.slots:
                self[p]["step"] = group.steps_of(k)


def there_of(value: Any, device: Device) -> Any:
    """The tensors of what parameters share, on a device."""
    if isinstance(value, (tuple, list)):
        return type(value)(there_of(x, device) for x in value)
    return value.to_device(device) if isinstance(value, Tensor) else value


def _zeros_beside(p: Tensor) -> Tensor:
    """Zeros of the shape of a parameter, on its device, in parts where it is."""
    if isinstance(p.own.payload, OnMesh):
        return Tensor(OnMesh(p.own.payload.parts.zeros()))
    return tensor(np.zeros(p.shape, p.dtype.numpy), device=p.device)
