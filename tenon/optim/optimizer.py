"""What all optimizers share: groups of parameters with options, and state made of tensors.

    group["lr"], group["step"]      0-d tensors, what they are now: changing one does not recompile a captured step
    group["params"]                 the parameters
    group.slots["exp_avg"]          one tensor a parameter, made at the start, zeros

A subclass names its `slots`, may compute what all parameters of a group share (`prepare`), and says how one parameter
changes (`update`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from typing import Any

import numpy as np

from tenon.capture.code_monitor import unwatched_calls
from tenon.capture.conditional_gradients import is_by_data, together
from tenon.devices import HOST, Device
from tenon.eager.grad_mode import enable_grad, no_grad
from tenon.errors import ArgumentError
from tenon.graph.argument_errors import refuse_misspelt
from tenon.nn import module
from tenon.nn.hooks import AFTER, BEFORE, HookHandle, added_hook, those
from tenon.optim.complex_parameters import update_parts
from tenon.optim.parameter_group import ParameterGroup, ParameterStates, as_it_is, there_of
from tenon.optim.pytorch_state import WAYS, from_pytorch, is_of_pytorch
from tenon.tensor import Tensor, tensor
from tenon.types import float64

KINDS: dict[str, Any] = {"name": str, "initial_lr": (int, float)}
NOT_ALWAYS = KINDS.keys()       # options that a group may have: the user's name for it, what a schedule notes
NEWER = {"decoupled_weight_decay"}      # options that states of earlier versions do not have: they stay as they are


class Optimizer:
    """Base of all optimizers.

    `params` are parameters, with or without their names, or dicts with "params" and options of their own; a subclass
    gives its options by name, or in a dictionary as in PyTorch.  `state[p]` is what is kept of a parameter.  Threads
    that make steps of one optimizer at once lose updates, as in PyTorch: a lock around the step is the user's.

    >>> w = nn.Parameter([1.0, 2.0])
    >>> opt = optim.SGD([w], lr=0.1)
    >>> (w * w).sum().backward(); opt.step(); opt.zero_grad()
    >>> w
    Parameter([0.8, 1.6])
    """

    slots: tuple[str, ...] = ()
    counts: tuple[tuple[str, float], ...] = ()      # scalars that every step changes, and their first values
    not_kept: tuple[str, ...] = ()          # what PyTorch keeps of a parameter, and is computed from the others here

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            _without_ways(cls)

    def __new__(cls, *_: Any, **options: Any) -> Any:
        """Nothing but a look at the options' names."""
        refuse_misspelt(cls, [name for name in options if name not in WAYS])
        return object.__new__(cls)

    def __init__(self, params: Iterable[Any], defaults: Mapping[str, Any] | None = None, **options: Any):
        if isinstance(params, Tensor):
            raise ArgumentError(f"{type(self).__name__}: a list of parameters was expected, not one tensor "
                                f"{params.type}", hint="give [x]")
        if not isinstance(params, Iterable):
            raise ArgumentError(f"{type(self).__name__}: parameters were expected, not {type(params).__name__}",
                                hint="give model.parameters()" if hasattr(params, "parameters") else None)
        given = list(params)
        if not given:
            raise ArgumentError(f"{type(self).__name__}: no parameters were given",
                                hint="model.parameters() is used up by the first that reads it; call it again")
        groups = given if isinstance(given[0], Mapping) else [{"params": given}]
        self.defaults = {**(defaults or {}), **options}
        self.param_groups: list[ParameterGroup] = []
        self.state = ParameterStates(self.param_groups)
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Also optimise these parameters, with options of their own; a group of another optimizer keeps its own too."""
        name, options = type(self).__name__, {**self.defaults, **{k: x for k, x in group.items() if k != "step"}}
        listed = [options["params"]] if isinstance(options["params"], Tensor) else options["params"]
        params = [x[1] if isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], str) else x for x in listed]
        unknown = [key for key in options if key not in (*self.defaults, *NOT_ALWAYS, "params")]
        if unknown and not isinstance(group, ParameterGroup):
            raise ArgumentError(f"{name}: no option {unknown[0]!r}", hint=f"its options are {', '.join(self.defaults)}"
                                f"; a note of your own comes later: opt.param_groups[0][{unknown[0]!r}] = x")
        for p in params:
            if not isinstance(p, Tensor):
                raise ArgumentError(f"{name} optimises tensors, not {type(p).__name__}")
            if not p.is_leaf:
                raise ArgumentError(f"{name}: a tensor {p.type} that is the result of an operator cannot be optimised",
                                    hint="pass the parameters themselves")
        known = {id(p) for other in self.param_groups for p in other["params"]}
        if any(id(p) in known for p in params) or len({id(p) for p in params}) != len(params):
            raise ArgumentError(f"{name}: a parameter was given twice")
        self.check(options)
        self.param_groups.append(ParameterGroup({**options, "params": params}, self.slots_for(options)))
        for name, first in self.counts:
            self.param_groups[-1].setdefault(name, tensor(first, dtype=float64))

    def slots_for(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """The names of the tensors kept for each parameter under these options."""
        return self.slots

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise ArgumentError on an option out of its range."""
        for key, value in options.items():
            numbers = value if key == "betas" else (value,)
            if any(isinstance(x, str) for x in numbers):
                raise ArgumentError(f"{type(self).__name__}: {key} must be a number, got {value!r}")
            if key in ("lr", "eps", "weight_decay", "momentum", "alpha", "rho", "lr_decay") and value < 0:
                raise ArgumentError(f"{type(self).__name__}: {key} must not be negative, got {value}")
            if key == "betas" and not all(0 <= x < 1 for x in numbers):
                raise ArgumentError(f"{type(self).__name__}: betas must lie in [0, 1), got {value}")

    # ------------------------------------------------------------ the learning rate

    @property
    def lr(self) -> Tensor:
        """The learning rate of the first group as it is now; setting it sets that of all groups."""
        now: Tensor = self.param_groups[0]["lr"]
        return now

    @lr.setter
    def lr(self, value: Any) -> None:
        for group in self.param_groups:
            group["lr"] = value

    def set_momentum(self, group: ParameterGroup, value: float) -> None:
        """Set what a group's `momentum` is, or the first of its `betas`; what is kept for it is made, if there is none.
        """
        if "betas" in group:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value
        group.make_slots(self.slots_for(group))

    # ------------------------------------------------------------ a step

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change every parameter that has a gradient; after a `closure` that computes them, whose result it returns.

        In a compiled step all change at once.  Eagerly one does after the other, as in PyTorch, so an error or Ctrl-C
        midway leaves the later ones as they were.
        """
        loss = None
        for hook in self._step_hooks(BEFORE):
            hook(self, (closure,) if closure is not None else (), {})
        if closure is not None:
            with enable_grad():
                loss = closure()
        self._change()
        for hook in self._step_hooks(AFTER):
            hook(self, (closure,) if closure is not None else (), {})
        return loss

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(optimizer, arguments, {})` before every step; the handle's `remove()` takes it away."""
        return added_hook(self, BEFORE, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(optimizer, arguments, {})` after every step."""
        return added_hook(self, AFTER, hook)

    def _step_hooks(self, when: str) -> list[Callable[..., Any]]:
        return those(self.__dict__.get("_hooks", {}), when)

    def _change(self) -> None:
        with no_grad():
            for group in self.param_groups:
                home, params = _home(group), group["params"]
                runs = together(params)
                by_data = [run for run in runs if is_by_data(params[run[0]])]
                groups = group.tick([k for run in runs for k in run], by_data)
                of = group.clock_of or (0,) * len(params)
                if group.clock_of:
                    self.state.count_by(group)
                used = {of[k] for run in runs if run not in by_data for k in run}
                known = {(home, c): (groups[c], self.prepare(groups[c])) for c in sorted(used)}
                for run in runs:
                    if params[run[0]].grad is not None:
                        places = known
                        if run in by_data:
                            places = self._counted(groups, sorted({of[k] for k in run}), home)
                        with unwatched_calls(self.update, [params[k] for k in run]):
                            for k in run:
                                gradient = -params[k].grad if group.get("maximize") else params[k].grad
                                slots = {name: slot[k] for name, slot in group.slots.items()}
                                where = _settled(params[k], slots)
                                if (where, of[k]) not in places:
                                    counted, shared = places[home, of[k]]
                                    places[where, of[k]] = counted.on(where), there_of(shared, where)
                                update = self.update
                                if gradient.dtype.is_complex:
                                    update = partial(update_parts, update)
                                update(params[k], gradient, slots, *places[where, of[k]])

    def _counted(self, groups: Sequence[ParameterGroup], clocks: Iterable[int],
                 home: Device) -> dict[tuple[Device, int], tuple[ParameterGroup, Any]]:
        """Count a step of these clocks, whose parameters have a gradient after all."""
        for c in clocks:
            groups[c].count()
        return {(home, c): (groups[c], self.prepare(groups[c])) for c in clocks}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None if set_to_none or p.grad is None else p.grad * 0

    def prepare(self, group: ParameterGroup) -> Any:
        """What the updates of all parameters of a group share; scalars in float64."""
        return None

    def update(self, p: Tensor, g: Tensor, slots: Mapping[str, Tensor], group: ParameterGroup, shared: Any) -> None:
        """Assign the new values of parameter `p` and of its `slots`, given its gradient `g`: where it is complex, those
        of its real and imaginary parts, which lie along a last axis."""
        raise NotImplementedError

    # ------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """Options, learning rates, step counts and slots; `tn.save` takes it."""
        return {"groups": [{
            "options": {key: value.detach() if isinstance(value, Tensor) else value
                        for key, value in group.items() if key != "params"},
            "slots": {name: [x.detach() for x in slot] for name, slot in group.slots.items()},
            **self._put_by_users(group),
            **({"clocks": group.clocks_apart()} if group.clock_of else {}),
        } for group in self.param_groups]}

    @classmethod
    def is_by_user(cls) -> bool:
        """Whether a subclass makes steps in its own way, with what it puts into `state`."""
        return cls.update is Optimizer.update

    def _put_by_users(self, group: ParameterGroup) -> dict[str, Any]:
        """What a subclass has put into `state` beside the slots, parameter by parameter."""
        known = {*group.slots, "step"} if group.slots else {}
        own = [{name: as_it_is(value) for name, value in self.state.get(p, {}).items() if name not in known}
               for p in group["params"]]
        return {"state": own} if any(own) else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state; the optimizer must have groups of as many parameters of the same shapes.

        A state of PyTorch's optimizer of that name fits too: `{"state": ..., "param_groups": ...}`.  Raises
        ArgumentError, and changes nothing, for a state that does not fit.
        """
        name = type(self).__name__
        if is_of_pytorch(state):
            state = from_pytorch(self, state)
        if not isinstance(state, Mapping) or not isinstance(state.get("groups"), (list, tuple)):
            raise ArgumentError(f"{name}.load_state_dict: what state_dict() gives was expected, not {_shown(state)}")
        groups = state["groups"]
        if len(groups) != len(self.param_groups):
            raise ArgumentError(f"{name} has {len(self.param_groups)} groups, the state has {len(groups)}")
        found = [(group, *self._fitting(group, saved)) for group, saved in zip(self.param_groups, groups, strict=True)]
        with no_grad():
            for group, pairs, options in found:
                for x, value in pairs:
                    x.assign(value)
                for key, value in options.items():
                    group[key] = value
            for group, saved in zip(self.param_groups, groups, strict=True):
                group.set_clocks(saved.get("clocks"))
                for p, own in zip(group["params"], saved.get("state", ()), strict=False):
                    self._put_back(self.state[p], own)

    def _put_back(self, kept: dict[str, Any], own: Mapping[str, Any]) -> None:
        """What a subclass keeps of a parameter: tensors stay the objects that they are."""
        for name, value in own.items():
            held, value = kept.get(name), value.clone() if isinstance(value, Tensor) else value
            if isinstance(held, Tensor) and isinstance(value, Tensor) and held.type == value.type:
                held.assign(value)
            else:
                kept[name] = value

    def _fitting(self, group: ParameterGroup, saved: Any) -> tuple[list[tuple[Tensor, Tensor]], dict[str, Any]]:
        """(the tensors of a group with their new values, the options) of a saved group; raises ArgumentError for what
        does not fit."""
        name = type(self).__name__
        if not isinstance(saved, Mapping) or not all(isinstance(saved.get(k), Mapping) for k in ("slots", "options")):
            raise ArgumentError(f"{name}.load_state_dict: a group is {_shown(saved)}, without slots and options")
        slots, options, own = saved["slots"], saved["options"], saved.get("state", ())
        if saved.get("clocks") is not None and not group.are_clocks(saved["clocks"]):
            raise ArgumentError(f"{name}.load_state_dict: the counts of steps do not fit: {_shown(saved['clocks'])}")
        if not isinstance(own, (list, tuple)) or not all(isinstance(x, Mapping) for x in own):
            raise ArgumentError(f"{name}.load_state_dict: what is kept of each parameter is {_shown(own)}, no list of "
                                "dictionaries")
        if slots.keys() != group.slots.keys():
            raise ArgumentError(f"{name} keeps {sorted(group.slots)} here, the state has {sorted(map(str, slots))}")
        pairs: list[tuple[Tensor, Tensor]] = []
        for key, slot in group.slots.items():
            if not isinstance(slots[key], (list, tuple)) or len(slot) != len(slots[key]):
                raise ArgumentError(f"{name} has {len(slot)} parameters, the state {_count(slots[key])}")
            pairs += [(x, self._value(key, value, x)) for x, value in zip(slot, slots[key], strict=True)]
        expected = group.keys() - {"params"}
        if options.keys() - NOT_ALWAYS | (NEWER & expected) != expected - NOT_ALWAYS:
            raise ArgumentError(f"{name} has the options {sorted(expected)}, the state {sorted(map(str, options))}")
        fitting = {key: self._option(key, value, group.get(key)) for key, value in options.items()}
        self.check(fitting)
        return pairs, fitting

    def _value(self, what: str, value: Any, held: Tensor) -> Tensor:
        found = module.state_tensor(value, held)
        if found is None:
            given = module.shown_value(value)
            raise ArgumentError(f"{type(self).__name__}: {what} is {held.type} here, and {given} in the state")
        return found

    def _option(self, key: str, value: Any, held: Any) -> Any:
        """An option of a state, which is of the kind that it has here."""
        if isinstance(held, Tensor):
            return self._value(key, np.asarray(value) if isinstance(value, (int, float)) else value, held)
        if key in NOT_ALWAYS:
            if not isinstance(value, KINDS[key]):
                raise ArgumentError(f"{type(self).__name__}: the option {key!r} is {value!r} in the state")
            return value
        value = tuple(value) if isinstance(value, list) else value
        if not _is_like(value, held):
            name = type(self).__name__
            raise ArgumentError(f"{name}: the option {key!r} is {held!r} here and {value!r} in the state")
        return value

    def __repr__(self) -> str:
        rows = []
        for group in self.param_groups:
            count = sum(int(p.size) for p in group["params"])
            options = {key: value for key, value in group.items() if key not in ("params", "step", "lr")}
            rate = [f"lr={group['lr'].item():g}"] if "lr" in group else []
            shown = ", ".join([*rate, *(f"{key}={value!r}" for key, value in options.items())])
            rows.append(f"{shown}: {len(group['params'])} parameters, {count:,} elements")
        return f"{type(self).__name__}({'; '.join(rows)})"


def _without_ways(kind: type) -> None:
    """Let an optimizer be made with PyTorch's words for how it is computed, which mean nothing here."""
    init = vars(kind)["__init__"]
    ignored = [way for way in WAYS if way not in init.__code__.co_varnames]

    @wraps(init)
    def made(self: Any, *args: Any, **named: Any) -> None:
        init(self, *args, **{name: value for name, value in named.items() if name not in ignored})
    kind.__init__ = made        # type: ignore[misc]


def _shown(state: Any) -> str:
    """What stands in the place of a state."""
    return f"a dictionary of {', '.join(map(repr, state))}" if isinstance(state, Mapping) else type(state).__name__


def _count(listed: Any) -> Any:
    return len(listed) if isinstance(listed, (list, tuple)) else _shown(listed)


def _is_like(value: Any, held: Any) -> bool:
    """Whether an option may have this value where it has that one: both flags, numbers, texts, or as many of them."""
    if isinstance(held, tuple):
        return isinstance(value, tuple) and len(value) == len(held) and all(map(_is_like, value, held))
    if isinstance(held, bool) or held is None or isinstance(held, str):
        return type(value) is type(held)
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _home(group: ParameterGroup) -> Device:
    """Where the scalars of a group are: beside its parameters, where these are all on one device."""
    if all(type(x.own.payload) is np.ndarray for x in (group.held("step"), *group["params"])):
        return HOST
    found = {p.device for p in group["params"]}
    home: Device = found.pop() if len(found) == 1 else HOST
    for x in group.values():
        if isinstance(x, Tensor) and x.device is not home:
            x._rebind(x.to_device(home))
    return home


def _settled(p: Tensor, slots: Mapping[str, Tensor]) -> Device:
    """The device of a parameter, to which what is kept of it has followed."""
    if all(type(x.own.payload) is np.ndarray for x in (p, *slots.values())):    # nearly always
        return HOST
    device: Device = p.device
    for kept in slots.values():
        if kept.device is not device:
            kept._rebind(kept.to_device(device))
    return device


def like(scalar: Tensor, p: Tensor) -> Any:
    """A scalar in the element type of `p`, so that it does not widen what it is multiplied with."""
    return scalar if scalar.dtype is p.dtype else scalar.astype(p.dtype)


def running(kept: Tensor, decay: Any, new: Any) -> Any:
    """`kept * decay + new`, so coarse that what only decays ends at zero: a multiple of 1e-34, of 1e-305 in float64.

    A weight behind a dead ReLU has no gradient, and the mean of its gradients decays: within a thousand steps it would
    be a denormal number, and stay one for good, which processors take many times as long for.
    """
    coarse = 2.0 ** (-960 if kept.dtype is float64 else -90)        # whose last place is that multiple
    return kept * decay + new + coarse - coarse
