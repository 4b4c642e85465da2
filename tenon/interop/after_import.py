"""A module of Tenon that is imported once another library's is: what registers Tenon there, in whatever order."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any


class AfterImport:
    """Waits among Python's finders for one module, and is gone when that was found."""

    def __init__(self, awaited: str, then: str):
        self.awaited, self.then = awaited, then

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """What Python itself finds, told to go on with the module of Tenon; None for every other name."""
        if name != self.awaited:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            self._go_on_from(spec.loader)
        return spec

    def _go_on_from(self, loader: Any) -> None:
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module      # the loader's class has its own
            run(module)
            importlib.import_module(self.then)
        loader.exec_module = exec_module


def after_import(awaited: str, then: str) -> None:
    """Import `then` as soon as `awaited` has been imported: at once, or when a program does it."""
    if awaited in sys.modules:
        importlib.import_module(then)
    else:
        sys.meta_path.insert(0, AfterImport(awaited, then))
