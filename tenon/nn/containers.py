"""Modules that hold modules: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from tenon.errors import ArgumentError
from tenon.migration_hints import MODULE, MissingName
from tenon.nn.module import Module, Parameter
from tenon.tensor import Tensor

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class _Holder(Module):
    """Items by name; the names are those of the state dict."""

    def __getattr__(self, name: str) -> Any:
        """An item by its name: `net.transformer.wte`."""
        items = self.__dict__.get("items_", {})
        if name not in items:
            raise MissingName(f"{type(self).__name__!r} object has no attribute {name!r}", hint=MODULE.get(name))
        return items[name]

    def __init__(self) -> None:
        self.items_: dict[str, Any] = {}

    def _members(self) -> Iterator[tuple[str, Any]]:
        yield from self.items_.items()
        yield from ((name, x) for name, x in super()._members() if not name.startswith("items_."))

    def _put(self, name: str, item: Any) -> None:
        if not isinstance(item, (Module, Tensor)):
            what = f"; {item.__name__} is a class or function" if isinstance(item, type) or callable(item) else ""
            raise ArgumentError(f"{type(self).__name__} holds modules, not {type(item).__name__}{what}",
                                hint=f"write {item.__name__}()" if isinstance(item, type) else None)
        self.items_[name] = item

    def add_module(self, name: str, item: Any) -> None:
        """Add one under a name, or replace it."""
        self._put(name, item)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.isdigit() or name in self.__dict__.get("items_", ()):
            self._put(name, value)          # setattr(seq, "0", layer)
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__.get("items_", ()):
            del self.items_[name]
        else:
            super().__delattr__(name)

    def __len__(self) -> int:
        return len(self.items_)


class _List(_Holder):
    def __iter__(self) -> Iterator[Any]:
        return iter(self.items_.values())

    def __getitem__(self, index: int | slice) -> Any:
        listed = list(self.items_.values())
        if not isinstance(index, slice):
            return listed[index]
        return self._of(listed[index])

    def _of(self, items: Iterable[Any]) -> Any:
        part = type(self).__new__(type(self))
        _Holder.__init__(part)
        return part.extend(items)

    def __add__(self, other: Iterable[Any]) -> Any:
        return self._of([*self, *other])

    def __iadd__(self, other: Iterable[Any]) -> Any:
        return self.extend(list(other))

    def __setitem__(self, index: int, item: Any) -> None:
        self._put(list(self.items_)[index], item)

    def __delitem__(self, index: int) -> None:
        listed = list(self.items_.values())
        del listed[index]
        self._refill(listed)

    def pop(self, index: int = -1) -> Any:
        """Take one away; returns it."""
        item = self[index]
        del self[index]
        return item

    def append(self, item: Any) -> Any:
        """Add one at the end; returns this."""
        self._put(next(str(k) for k in count(len(self.items_)) if str(k) not in self.items_), item)
        return self

    def extend(self, items: Iterable[Any]) -> Any:
        """Add several at the end; returns this."""
        for item in items:
            self.append(item)
        return self

    def insert(self, index: int, item: Any) -> None:
        """Add one before `index`."""
        listed = list(self.items_.values())
        listed.insert(index, item)
        self._refill(listed)

    def _refill(self, listed: list[Any]) -> None:
        self.items_.clear()
        self.extend(listed)


class Sequential(_List):
    """Modules one after another; from modules, or from a dict of named modules.

    >>> nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    Sequential            26 parameters
    ├─ 0: Linear(3, 4)    16
    ├─ 1: ReLU             0
    └─ 2: Linear(4, 2)    10
    """

    def __init__(self, *modules: Any):
        super().__init__()
        named = modules[0].items() if len(modules) == 1 and isinstance(modules[0], Mapping) else \
            ((str(k), item) for k, item in enumerate(modules))
        for name, item in named:
            self._put(name, item)

    def __getitem__(self, index: int | slice) -> Any:
        """One of them, or a `Sequential` of some, which keep their names."""
        if not isinstance(index, slice):
            return super().__getitem__(index)
        part = self._of(())
        for name, item in list(self.items_.items())[index]:
            part._put(name, item)
        return part

    def forward(self, x: Any) -> Any:
        for item in self.items_.values():
            x = item(x)
        return x


class ModuleList(_List):
    """A list of modules whose parameters are found; a plain list as an attribute does as well."""

    def __init__(self, modules: Iterable[Module] | None = None):
        super().__init__()
        self.extend(modules or ())


class _OfParameters(_Holder):
    def _put(self, name: str, item: Any) -> None:
        """Other tensors become parameters."""
        super()._put(name, Parameter(item) if isinstance(item, Tensor) and not isinstance(item, Parameter) else item)


class ParameterList(_OfParameters, _List):
    """A list of parameters."""

    def __init__(self, values: Iterable[Tensor] | None = None):
        super().__init__()
        self.extend(values or ())


class _Dict(_Holder):
    def update(self, items: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Add or replace several."""
        for name, item in dict(items).items():
            self._put(name, item)

    def __getitem__(self, name: str) -> Any:
        return self.items_[name]

    def __setitem__(self, name: str, item: Any) -> None:
        self._put(name, item)

    def __delitem__(self, name: str) -> None:
        del self.items_[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.items_)

    def __contains__(self, name: object) -> bool:
        return name in self.items_

    def pop(self, name: str) -> Any:
        """Take one away; returns it."""
        return self.items_.pop(name)

    def clear(self) -> None:
        """Take all away."""
        self.items_.clear()

    def keys(self) -> Iterable[str]:
        """The names."""
        return self.items_.keys()

    def values(self) -> Iterable[Any]:
        """What they name."""
        return self.items_.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and what they name."""
        return self.items_.items()


class ModuleDict(_Dict):
    """Modules by name."""

    def __init__(self, modules: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None):
        super().__init__()
        self.update(modules or ())


class ParameterDict(_OfParameters, _Dict):
    """Parameters by name."""

    def __init__(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None):
        super().__init__()
        self.update(parameters or ())
