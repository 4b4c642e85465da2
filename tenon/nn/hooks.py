"""Functions that are called before and after a module, when gradients come, and when its state is made or taken.

Hooks stand in the module's `_hooks`, in the order in which they were added; a captured function calls them too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tenon.eager.gradient_hooks import watched
from tenon.errors import ArgumentError
from tenon.tensor_state import as_called

Hooks = dict[int, tuple[str, Callable[..., Any]]]       # when it is called, and the hook
BEFORE_ALL, AFTER_ALL = "before, with keywords", "after, with keywords"
BEFORE, AFTER, GRADIENT_OUT, GRADIENT_IN = "before", "after", "gradient of the output", "gradient of the input"
OF_THE_STATE, BEFORE_LOADING, AFTER_LOADING = "of the state", "before loading", "after loading"


class HookHandle:
    """A hook that was added; `remove()` takes it away, as does the end of a `with` block."""

    def __init__(self, module: Any, key: int):
        self.module, self.key = module, key

    def remove(self) -> None:
        """Take the hook away; a second time does nothing."""
        self.module._hooks = {key: hook for key, hook in self.module._hooks.items() if key != self.key}

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def added_hook(module: Any, when: str, hook: Callable[..., Any], first: bool = False) -> HookHandle:
    """Let a module call a hook, before all others if it is to be `first`.

    Raises ArgumentError where its class has a `__call__` of its own, which would not.
    """
    if not callable(hook):
        raise ArgumentError(f"register_forward_hook: a function was expected, not {type(hook).__name__}")
    in_calls = when in (BEFORE, AFTER, BEFORE_ALL, AFTER_ALL, GRADIENT_OUT, GRADIENT_IN)
    if in_calls and any("__call__" in vars(kind) and "forward" not in vars(kind) for kind in type(module).__mro__[:-2]):
        raise ArgumentError(f"{type(module).__name__} defines __call__, which calls no hooks",
                            hint="name its function forward")
    held: Hooks = module.__dict__.get("_hooks", {})
    key = max(held, default=-1) + 1
    module._hooks = {key: (when, hook), **held} if first else {**held, key: (when, hook)}
    return HookHandle(module, key)


def called_with_hooks(module: Any, hooks: Hooks, inputs: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """What the module returns for these inputs, hooks included."""
    for when, hook in hooks.values():
        if when == BEFORE and (new := hook(module, inputs)) is not None:
            inputs = new if isinstance(new, tuple) else (new,)
        elif when == BEFORE_ALL and (new := hook(module, inputs, options)) is not None:
            inputs, options = _both(module, new)
    seen = None
    if any(when in (GRADIENT_IN, GRADIENT_OUT) for when, _ in hooks.values()):
        seen = GradientsSeen(module, hooks, inputs)
        inputs = seen.inputs
    out = module.forward(*inputs, **options)
    for when, hook in hooks.values():
        if when in (AFTER, AFTER_ALL):
            new = hook(module, inputs, out) if when == AFTER else hook(module, inputs, options, out)
            out = out if new is None else new
    return out if seen is None else seen.output(out)


def _both(module: Any, new: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if not isinstance(new, tuple) or len(new) != 2 or not isinstance(new[0], tuple) or not isinstance(new[1], Mapping):
        raise ArgumentError(f"{type(module).__name__}: a hook before it, with_kwargs=True, must return None, or a "
                            f"tuple and a dict, not {type(new).__name__}")
    return new


def those(hooks: Hooks, when: str) -> list[Callable[..., Any]]:
    """The hooks that are called then."""
    return [as_called(hook) for its, hook in hooks.values() if its == when]


class GradientsSeen:
    """One call of a module with backward hooks: places on the tape at what goes in and what comes out."""

    def __init__(self, module: Any, hooks: Hooks, inputs: tuple[Any, ...]):
        self.module, self.hooks, self.came = module, hooks, ()
        self.inputs = tuple(watched(inputs, self._at_inputs))
        self.places = [k for k, (x, y) in enumerate(zip(inputs, self.inputs, strict=True)) if x is not y]

    def output(self, out: Any) -> Any:
        """What the module returned, watched."""
        self.listed = list(out) if isinstance(out, (tuple, list)) else [out]
        found = watched(self.listed, self._at_outputs)
        self.given = [k for k, (x, y) in enumerate(zip(self.listed, found, strict=True)) if x is not y]
        if not isinstance(out, (tuple, list)):
            return found[0]
        return type(out)(*found) if hasattr(out, "_fields") else type(out)(found)

    def _at_outputs(self, gradients: Any) -> Any:
        self.came = _spread(gradients, self.given, len(self.listed))
        for hook in those(self.hooks, GRADIENT_OUT):
            if (new := hook(self.module, self.came)) is not None:
                self.came = new if isinstance(new, tuple) else (new,)
        if not self.places:         # no gradient goes on from here
            for hook in those(self.hooks, GRADIENT_IN):
                hook(self.module, (None,) * len(self.inputs), self.came)
        return [self.came[k] for k in self.given]

    def _at_inputs(self, gradients: Any) -> Any:
        found = _spread(gradients, self.places, len(self.inputs))
        for hook in those(self.hooks, GRADIENT_IN):
            if (new := hook(self.module, found, self.came)) is not None:
                found = new if isinstance(new, tuple) else (new,)
        return [found[k] for k in self.places]


def _spread(gradients: Any, places: list[int], count: int) -> tuple[Any, ...]:
    """A gradient a place, None where there is none."""
    known = dict(zip(places, gradients, strict=True))
    return tuple(known.get(k) for k in range(count))
