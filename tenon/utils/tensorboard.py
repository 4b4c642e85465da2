"""PyTorch's `SummaryWriter`, on `tn.debug.Log`: TensorBoard's event files, written without TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tenon.debug.training_log import Log

__all__ = ["SummaryWriter"]


class SummaryWriter:
    """Writes to an event file in `log_dir`, by default a new folder below `runs`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
    ...     writer.add_scalar("loss", tn.tensor(2.0), global_step=3)
    ...     writer.log.history["loss"]
    [(3, 2.0)]
    """

    def __init__(self, log_dir: Any = None, comment: str = "", **_: Any):
        self.log_dir = str(log_dir or Path("runs") / (time.strftime("%b%d_%H-%M-%S") + comment))
        self.log = Log(self.log_dir)
        self.flush, self.close = self.log.flush, self.log.close

    def add_scalar(self, tag: str, scalar_value: Any, global_step: Any = None, walltime: Any = None, **_: Any) -> None:
        """A number under a tag."""
        self.log.scalar(tag, scalar_value, global_step)

    def add_scalars(self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: Any = None,
                    walltime: Any = None) -> None:
        """Several, under `main_tag/name`."""
        self.log.scalars({f"{main_tag}/{name}": x for name, x in tag_scalar_dict.items()}, global_step)

    def add_histogram(self, tag: str, values: Any, global_step: Any = None, *_: Any, **__: Any) -> None:
        """How often numbers are how large."""
        self.log.histogram(tag, values, global_step)

    def add_image(self, tag: str, img_tensor: Any, global_step: Any = None, *_: Any, **__: Any) -> None:
        """A picture."""
        self.log.image(tag, img_tensor, global_step)

    def add_text(self, tag: str, text_string: str, global_step: Any = None, walltime: Any = None) -> None:
        """Text."""
        self.log.text(tag, text_string, global_step)

    def add_graph(self, model: Any, input_to_model: Any = None, *_: Any, **__: Any) -> None:
        """The captured graph of a model."""
        self.log.graph(model, *(input_to_model if isinstance(input_to_model, (tuple, list)) else [input_to_model]))

    def add_hparams(self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, Any], *_: Any, **__: Any) -> None:
        """Options as text, and what came of them as numbers."""
        self.log.text("hparams", "\n".join(f"- {name}: {x}" for name, x in hparam_dict.items()))
        self.log.scalars(dict(metric_dict))

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
