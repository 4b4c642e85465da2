"""What a module holds of one kind by name, as programs for PyTorch change it: `net._modules["head"] = layer`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any


class MembersByName(MutableMapping[str, Any]):
    """The members of a module that are `chosen`; a new one is put by `put(name, value)`."""

    def __init__(self, module: Any, chosen: Callable[[str, Any], bool], put: Callable[[str, Any], Any]):
        self.module, self.chosen, self.put = module, chosen, put

    def _found(self) -> dict[str, Any]:
        return {name: x for name, x in self.module._members() if self.chosen(name, x)}

    def __getitem__(self, name: str) -> Any:
        found = self._found()
        return found[name] if name in found or self.module.__dict__.get(name, self) is not None else None

    def __setitem__(self, name: str, value: Any) -> None:
        self.put(name, value)

    def __delitem__(self, name: str) -> None:
        delattr(self.module, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._found())

    def __len__(self) -> int:
        return len(self._found())

    def __repr__(self) -> str:
        return repr(self._found())
