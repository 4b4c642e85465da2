"""What models with public checkpoints share: a configuration by name, and weights by name.

A subclass has a `Config`, a dataclass with the names of the checkpoint's `config.json`, and modules with the names of
its weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from tenon.errors import ArgumentError
from tenon.nn.module import Module
from tenon.serialization.weight_files import load_weights

M = TypeVar("M", bound="PublicModel")
LARGEST_CONFIG = 10_000_000


class PublicModel(Module):
    """A model that is made of a configuration: an object, a mapping such as `config.json` holds, or keywords."""

    Config: ClassVar[Any]
    prefixes: ClassVar[tuple[str, ...]] = ()        # that some checkpoints have before all names
    computed: ClassVar[tuple[str, ...]] = ()        # endings of names of what is computed here, or held elsewhere

    def __init__(self, config: Any = None, **fields: Any):
        kind, known = self.Config, self.Config.__annotations__
        if isinstance(config, Mapping):             # config.json holds more than a model needs
            config = kind(**{name: value for name, value in config.items() if name in known})
        unknown = [name for name in fields if name not in known]
        if unknown:
            raise ArgumentError(f"{type(self).__name__}: no field {unknown[0]!r} in its configuration",
                                hint=f"its fields are {', '.join(known)}")
        held = {name: getattr(config, name) for name in known} if config is not None else {}
        self.config = kind(**{**held, **fields})
        self.build(self.config)

    def build(self, config: Any) -> None:
        """Make the modules."""
        raise NotImplementedError

    @classmethod
    def from_folder(cls: type[M], folder: Any) -> M:
        """The model of a folder with `config.json` and weights, in evaluation mode.

        Raises ArgumentError where one is missing or does not fit.
        """
        path = Path(folder) / "config.json"
        if not path.is_file() or path.stat().st_size > LARGEST_CONFIG:
            raise ArgumentError(f"{cls.__name__}.from_folder: there is no config.json in {folder}")
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ArgumentError(f"{cls.__name__}.from_folder: {path} is damaged: {error}") from None
        if not isinstance(config, dict):
            raise ArgumentError(f"{cls.__name__}.from_folder: {path} holds no fields")
        model = cls(config)
        model.load_public(load_weights(folder))
        return model.eval()

    def load_public(self, weights: Any) -> None:
        """Take the weights of a public checkpoint: a mapping of tensors or arrays, or the path of a file.

        Names may have one of the prefixes that checkpoints of this kind have.  Raises ArgumentError where a weight is
        missing, does not fit, or is not known.
        """
        found = weights if isinstance(weights, Mapping) else load_weights(weights)
        named = {self._own_name(name): value for name, value in found.items()}
        known = self._state()
        kept = {name: value for name, value in named.items() if name in known or not name.endswith(self.computed)}
        self.load_state_dict(kept)

    def _own_name(self, name: str) -> str:
        prefix = next((prefix for prefix in self.prefixes if name.startswith(prefix)), "")
        return name.removeprefix(prefix)
