"""The state of a run (model, optimizer, schedule, loader, generators, numbers) <-> one file.

    run = tn.Checkpoint("run.safetensors", model=net, optimizer=opt, schedule=schedule, loader=loader)
    first = run.restore().get("epoch", 0)           # {} where there is no file yet
    for epoch in range(first, 10):
        for x, y in loader:                         # goes on within the epoch
            step(x, y)
            run.save(epoch=epoch)

A run that goes on from its file computes what it would have computed, to the bit.  Tenon's own generator is always part
of it.  A file is there as a whole, or the one before it still is, whenever the process ends.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tenon.errors import ArgumentError
from tenon.random import Generator, default_generator
from tenon.serialization.save_load import load, save

VALUES, GENERATOR = "values", "default_generator"


class Checkpoint:
    """What a run consists of, and the file that keeps it.

    Parts have `state_dict()` and `load_state_dict(state)`, or are generators.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.safetensors"
    >>> net = nn.Linear(3, 2)
    >>> tn.Checkpoint(path, model=net).save(epoch=3)
    >>> tn.Checkpoint(path, model=net).restore()
    {'epoch': 3}
    """

    def __init__(self, path: str | os.PathLike[str], **parts: Any):
        for name, part in parts.items():
            has_state = hasattr(part, "state_dict") and hasattr(part, "load_state_dict")
            if not has_state and not isinstance(part, Generator):
                raise ArgumentError(f"Checkpoint: {name} is a {type(part).__name__}, which has no state_dict()",
                                    hint="numbers and tensors are given to save(epoch=...)")
            if name in (VALUES, GENERATOR):
                raise ArgumentError(f"Checkpoint: a part cannot be called {name!r}")
        self.path, self.parts = path, {**parts, GENERATOR: default_generator}

    def save(self, **values: Any) -> None:
        """Write all parts as they are now, and these values: tensors, numbers, strings, None, in lists and dicts."""
        self.write({**{name: _state(part) for name, part in self.parts.items()}, VALUES: values})

    def restore(self) -> dict[str, Any]:
        """Give all parts what the file holds, and return its values; {} where there is no file.

        Raises ArgumentError, and changes nothing, where the file is damaged or of another run.
        """
        if not self.exists():
            return {}
        before = {name: _state(part) for name, part in self.parts.items()}
        found = self.read(before)
        if not isinstance(found, dict) or found.keys() != {*self.parts, VALUES}:
            held = ", ".join(found) if isinstance(found, dict) else type(found).__name__
            raise ArgumentError(f"Checkpoint: {os.fspath(self.path)!r} holds {held}, and this run consists of "
                                f"{', '.join(self.parts)}")
        try:
            for name, part in self.parts.items():
                _take_over(part, found[name])
        except BaseException:
            for name, part in self.parts.items():
                _take_over(part, before[name])
            raise
        values: dict[str, Any] = found[VALUES]
        return values

    # ------------------------------------------------------------ where it is kept

    def exists(self) -> bool:
        """Whether there is a file."""
        return os.path.lexists(self.path)

    def write(self, state: dict[str, Any]) -> None:
        """Write a state."""
        save(state, self.path)

    def read(self, before: dict[str, Any]) -> Any:
        """The state that was written; `before` is that of the parts now."""
        return load(self.path)


def _state(part: Any) -> Any:
    return {"state": part.get_state()} if isinstance(part, Generator) else part.state_dict()


def _take_over(part: Any, state: Any) -> None:
    if not isinstance(part, Generator):
        part.load_state_dict(state)
        return
    held = state.get("state") if isinstance(state, Mapping) else None
    if getattr(held, "type", None) != part.state.type:
        raise ArgumentError("Checkpoint: the state of a generator was expected")
    part.set_state(held)
