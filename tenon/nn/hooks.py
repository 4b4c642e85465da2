"""Functions that are called before and after a module: `register_forward_hook` and `register_forward_pre_hook`.

Hooks stand in the module's `_hooks`, in the order in which they were added; a captured function calls them too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tenon.errors import ArgumentError

Hooks = dict[int, tuple[bool, Callable[..., Any]]]      # whether it is called before, and the hook


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


def added_hook(module: Any, before: bool, hook: Callable[..., Any]) -> HookHandle:
    """Let a module call a hook; raises ArgumentError where its class has a `__call__` of its own, which would not."""
    if not callable(hook):
        raise ArgumentError(f"register_forward_hook: a function was expected, not {type(hook).__name__}")
    if any("__call__" in vars(kind) and "forward" not in vars(kind) for kind in type(module).__mro__[:-2]):
        raise ArgumentError(f"{type(module).__name__} defines __call__, which calls no hooks",
                            hint="name its function forward")
    held: Hooks = module.__dict__.get("_hooks", {})
    key = max(held, default=-1) + 1
    module._hooks = {**held, key: (before, hook)}
    return HookHandle(module, key)


def called_with_hooks(module: Any, hooks: Hooks, inputs: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """What the module returns for these inputs, hooks included."""
    for before, hook in hooks.values():
        if before and (new := hook(module, inputs)) is not None:
            inputs = new if isinstance(new, tuple) else (new,)
    out = module.forward(*inputs, **options)
    for before, hook in hooks.values():
        if not before and (new := hook(module, inputs, out)) is not None:
            out = new
    return out
