"""Parameters that are computed from others whenever they are read: weight norm, spectral norm, or a module of yours.

    register_parametrization(layer, "weight", Symmetric())      # layer.weight is Symmetric()(the original)

The class of such a module is derived from its own one, with a property in the place of the parameter; the originals are
in `layer.parametrizations.weight`, under PyTorch's names, so states can be exchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tenon.eager.grad_mode import no_grad
from tenon.errors import ArgumentError
from tenon.nn.module import Module, Parameter
from tenon.tensor import Tensor

Getter = Callable[[Any], Any]
Setter = Callable[[Any, Any], None]

__all__ = ["ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations"]


class ParametrizationList(Module):
    """The original of a parameter, or its parts, and the modules that it goes through."""

    def __init__(self, first: Module, value: Tensor):
        invert = getattr(first, "right_inverse", None)
        with no_grad():
            found = value.detach() if invert is None else invert(value.detach())
        parts = found if isinstance(found, tuple) else (found,)
        self.names = [f"original{k}" for k in range(len(parts))] if isinstance(found, tuple) else ["original"]
        for name, part in zip(self.names, parts, strict=True):
            setattr(self, name, Parameter(part) if isinstance(value, Parameter) else part)
        self.steps = 0
        self.append(first)

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, k: int) -> Module:
        """The k-th module that the parameter goes through."""
        found: Module = getattr(self, str(range(self.steps)[k]))
        return found

    def append(self, step: Module) -> None:
        """Let the parameter go through this module last."""
        setattr(self, str(self.steps), step)
        self.steps += 1

    def put(self, value: Any) -> None:
        """Let the originals be those that stand for a value; raises ArgumentError where a step has no inverse."""
        with no_grad():
            for k in reversed(range(self.steps)):
                invert = getattr(getattr(self, str(k)), "right_inverse", None)
                if invert is None:
                    raise ArgumentError(f"{type(getattr(self, str(k))).__name__} has no right_inverse: "
                                        "what it computes cannot be assigned")
                value = invert(value)
            for name, part in zip(self.names, value if isinstance(value, tuple) else (value,), strict=True):
                getattr(self, name).assign(part)

    def forward(self) -> Any:
        x: Any = getattr(self, "0")(*(getattr(self, name) for name in self.names))
        for k in range(1, self.steps):
            x = getattr(self, str(k))(x)
        return x


class Parametrizations(Module):
    """What the attributes of a module with these names are computed from: `layer.parametrizations.weight`."""

    def __contains__(self, name: object) -> bool:
        return isinstance(self.__dict__.get(str(name)), ParametrizationList)

    def __getitem__(self, name: str) -> ParametrizationList:
        found: ParametrizationList = getattr(self, name)
        return found


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *,
                             unsafe: bool = False) -> Module:
    """Let `module.<tensor_name>` be what `parametrization` makes of the parameter; returns the module.

    A `right_inverse` of the parametrization gives the original, or a tuple of parts, for the value that it has now.
    """
    if is_parametrized(module, tensor_name):
        module.parametrizations[tensor_name].append(parametrization)
        return module
    value = module.__dict__.get(tensor_name)
    if not isinstance(value, Tensor):
        raise ArgumentError(f"register_parametrization: {type(module).__name__} has no tensor {tensor_name!r}")
    held = ParametrizationList(parametrization, value)
    if not is_parametrized(module):
        module.parametrizations = Parametrizations()
    delattr(module, tensor_name)
    setattr(module.parametrizations, tensor_name, held)
    computed(module, tensor_name, lambda self: self.parametrizations[tensor_name](),
             lambda self, value: self.parametrizations[tensor_name].put(value))
    return module


def computed(module: Module, name: str, get: Getter, put: Setter | None = None) -> None:
    """Let a module's attribute be what a function makes of the module, and another one take what is assigned."""
    _become(module, {**getattr(module, "_computed", {}), name: (get, put)})


def restored(module: Module, name: str, value: Tensor) -> None:
    """Let it be a parameter again."""
    _become(module, {other: ways for other, ways in module._computed.items() if other != name})
    setattr(module, name, value if isinstance(value, Parameter) else Parameter(value))


def _become(module: Module, getters: dict[str, tuple[Getter, Setter | None]]) -> None:
    """Give a module its own class with these attributes computed."""
    plain = getattr(module, "_plain", type(module))
    kind = plain if not getters else type(plain.__name__, (plain,), {
        "__slots__": (), "__module__": plain.__module__, "__doc__": plain.__doc__, "_plain": plain,
        "_computed": getters, **{name: property(*ways) for name, ways in getters.items()}})
    object.__setattr__(module, "__class__", kind)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module has a parametrization, or this tensor of it."""
    held = module.__dict__.get("parametrizations")
    return held is not None and (tensor_name is None or tensor_name in held)


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Let the attribute be a parameter again: of the value it has now, or the original; returns the module."""
    if not is_parametrized(module, tensor_name):
        raise ArgumentError(f"remove_parametrizations: {tensor_name!r} of {type(module).__name__} has none")
    held = module.parametrizations[tensor_name]
    if not leave_parametrized and held.names != ["original"]:
        raise ArgumentError(f"remove_parametrizations: the original of {tensor_name!r} has {len(held.names)} parts",
                            hint="leave_parametrized=True")
    with no_grad():
        value = (getattr(module, tensor_name) if leave_parametrized else held.original).detach()
    restored(module, tensor_name, value)
    delattr(module.parametrizations, tensor_name)
    if not list(module.parametrizations.children()):
        del module.parametrizations
    return module


def cached() -> AbstractContextManager[None]:
    """A block for programs that say so: parameters are computed at every reading, inside too, with the same values."""
    return nullcontext()
