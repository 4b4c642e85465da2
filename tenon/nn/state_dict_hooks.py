"""What modules change of a state, as it is made and before it is taken: extra state, hooks, names of older files.

A state is one flat dictionary.  Each module of the tree is asked by its prefix, `blocks.0.`, so that a class may rename
its own entries (`_load_from_state_dict`, as in PyTorch) wherever it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenon.nn.hooks import AFTER_LOADING, BEFORE_LOADING, OF_THE_STATE, those

EXTRA = "_extra_state"
Tree = Sequence[tuple[str, Any]]        # names and modules, the outer ones first


def changed_state(state: dict[str, Any], tree: Tree, prefix: str) -> dict[str, Any]:
    """A state with what modules add to it, and as hooks leave it; inner modules come first."""
    for name, module in reversed(tree):
        at = prefix + _prefix(name)
        if hasattr(type(module), "get_extra_state"):
            state[at + EXTRA] = module.get_extra_state()
        for hook in those(module.__dict__.get("_hooks", {}), OF_THE_STATE):
            new = hook(module, state, at, {})
            state = state if new is None else new
    return state


@dataclass
class Loading:
    """A state that modules have changed, and what does not fit."""

    tree: Tree
    state: dict[str, Any]
    missing: list[str]
    unexpected: list[str]
    errors: list[str]

    @property
    def has_hooks_after(self) -> bool:
        """Whether hooks may still say that differing names are as they should be."""
        return any(those(module.__dict__.get("_hooks", {}), AFTER_LOADING) for _, module in self.tree)

    def differing(self, strict: bool) -> list[str]:
        """The names that differ, a row each of the two kinds."""
        kinds = {"missing": self.missing, "unexpected": self.unexpected}
        return [f"{kind}: {', '.join(map(str, names))}" for kind, names in kinds.items() if strict and names]

    def finish(self, keys: Any) -> None:
        """Give modules their extra state, and call the hooks, those of inner modules first."""
        for name, module in reversed(self.tree):
            if (key := _prefix(name) + EXTRA) in self.state and hasattr(type(module), "set_extra_state"):
                module.set_extra_state(self.state[key])
            for hook in those(module.__dict__.get("_hooks", {}), AFTER_LOADING):
                hook(module, keys)


def changed_state_to_load(tree: Tree, given: Mapping[str, Any], own: Mapping[str, Any], strict: bool) -> Loading:
    """A copy of a state as the modules want it, outer ones first."""
    loading = Loading(tree, dict(given), [], [], [])
    extra = {_prefix(name) + EXTRA for name, module in tree if hasattr(type(module), "set_extra_state")}
    for name, module in tree:
        module._load_from_state_dict(loading.state, _prefix(name), {"version": getattr(module, "_version", 1)}, strict,
                                     loading.missing, loading.unexpected, loading.errors)
    loading.missing += sorted(extra - loading.state.keys())
    loading.missing = list(dict.fromkeys(loading.missing))
    loading.unexpected += [name for name in loading.state if name not in own and name not in extra]
    return loading


def hooks_before_loading(module: Any, *given: Any) -> None:
    """Call a module's hooks that change a state before it is taken."""
    for hook in those(module.__dict__.get("_hooks", {}), BEFORE_LOADING):
        hook(module, *given)


def _prefix(name: str) -> str:
    return f"{name}." if name else ""
