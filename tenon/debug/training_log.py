"""A training run -> an event file that TensorBoard shows: curves, histograms, pictures, text, the graph.

    with tn.debug.Log("runs/first") as log:
        for x, y in loader:
            log.scalar("loss", step(x, y))
    # tensorboard --logdir runs
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from tenon.debug import event_files
from tenon.debug.dashboard import Dashboard
from tenon.debug.image_files import curves, png_bytes
from tenon.debug.viewer.document import document_of
from tenon.errors import ArgumentError
from tenon.locks import Lock
from tenon.nn.module import shown_value
from tenon.tensor import Tensor

FLUSHED_EVERY = 1.0         # seconds at most that what was logged is not in the file
SIZES = re.compile(r"\[(.*)\]")


class Log:
    """Writes to an event file of its own in `folder`, from any thread.

    Every method takes a tag, under which TensorBoard shows the values, and a `step`; without one the values of a tag
    are numbered from 0.  `history` has the scalars: (step, value) by tag.  With `live` their curves stay on the
    terminal (by rich), with the time that is left of `total` steps.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, tn.debug.Log(folder) as log:
    ...     for loss in (2.0, 1.0):
    ...         log.scalar("loss", tn.tensor(loss))
    >>> log.history["loss"]
    [(0, 2.0), (1, 1.0)]
    """

    def __init__(self, folder: str | Path, live: bool = False, total: int | None = None):
        Path(folder).mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{id(self)}"
        self.path = Path(folder) / name
        self.history: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self._file = open(self.path, "xb")  # noqa: SIM115  # closed by close()
        self._steps: dict[str, int] = defaultdict(int)
        self._lock, self._flushed = Lock(), 0.0
        self._dashboard = Dashboard(total) if live else None
        self._write(event_files.version_event(time.time()))

    # ------------------------------------------------------------ what is logged

    def scalar(self, tag: str, value: Any, step: int | None = None) -> None:
        """One number: a Python number, or a tensor or array of one element."""
        array = _numbers("scalar", tag, value)
        if array.size != 1:
            raise ArgumentError(f"Log.scalar: one number was expected for {tag!r}, not {shown_value(value)}")
        number, step = float(array.reshape(())), self._step(tag, step)
        self.history[tag].append((step, number))
        self._summary(step, event_files.scalar(tag, number))
        if self._dashboard is not None:
            with self._lock:
                self._dashboard.update(self.history)

    def scalars(self, values: dict[str, Any], step: int | None = None) -> None:
        """Several numbers by their tags."""
        for tag, value in values.items():
            self.scalar(tag, value, step)

    def histogram(self, tag: str, values: Any, step: int | None = None) -> None:
        """How the elements of a tensor are distributed."""
        self._summary(self._step(tag, step), event_files.histogram(tag, _numbers("histogram", tag, values)))

    def image(self, tag: str, picture: Any, step: int | None = None) -> None:
        """A picture [height, width], [height, width, c] or [c, height, width] with 1, 3 or 4 channels.

        Bytes, or floating numbers from 0 to 1; what is outside is cut off.
        """
        pixels = _pixels(tag, _numbers("image", tag, picture))
        self._summary(self._step(tag, step), event_files.image(tag, png_bytes(pixels), *pixels.shape))

    def text(self, tag: str, words: str, step: int | None = None) -> None:
        """Text, in Markdown."""
        self._summary(self._step(tag, step), event_files.text(tag, words))

    def graph(self, function: Any, *args: Any, **keywords: Any) -> None:
        """The captured graph of a call, in the modules that its nodes come from; nothing of the call is done."""
        data = document_of(function, args, keywords, times=False, code=False)
        self._write(event_files.graph_event(time.time(), event_files.graph(_graph_nodes(data))))

    def chart(self, path: str | Path) -> None:
        """Write the scalars as curves, to a .png; raises ArgumentError where matplotlib is not installed."""
        if not curves(Path(path), self.history):
            raise ArgumentError("Log.chart needs matplotlib", hint="pip install matplotlib")

    # ------------------------------------------------------------ the file

    def flush(self) -> None:
        """Let the file have all that was logged."""
        with self._lock:
            self._file.flush()

    def close(self) -> None:
        """End the file; nothing can be logged afterwards."""
        with self._lock:
            self._file.close()
            if self._dashboard is not None:
                self._dashboard.close(self.history)
                self._dashboard = None

    def __enter__(self) -> Log:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Log {self.path}>"

    def _step(self, tag: str, step: int | None) -> int:
        number = self._steps[tag] if step is None else int(step)
        self._steps[tag] = number + 1
        return number

    def _summary(self, step: int, value: bytes) -> None:
        self._write(event_files.summary_event(time.time(), step, [value]))

    def _write(self, event: bytes) -> None:
        with self._lock:
            if self._file.closed:
                raise ArgumentError(f"{self!r} is closed", hint="log before close(), or in the `with` block")
            self._file.write(event_files.record(event))
            if (now := time.monotonic()) - self._flushed > FLUSHED_EVERY:
                self._file.flush()
                self._flushed = now


def _numbers(method: str, tag: str, value: Any) -> np.ndarray:
    """The elements of a tensor, an array or a number; raises ArgumentError for what is no real number."""
    array = value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.kind not in "fiub" and not (array.dtype.kind == "V" and array.dtype.names is None):
        raise ArgumentError(f"Log.{method}: real numbers were expected for {tag!r}, not {shown_value(value)}")
    return array


def _pixels(tag: str, picture: np.ndarray) -> np.ndarray:
    """Bytes [height, width, channels]."""
    if picture.ndim == 2:
        picture = picture[..., None]
    if picture.ndim == 3 and picture.shape[2] not in (1, 3, 4) and picture.shape[0] in (1, 3, 4):
        picture = picture.transpose(1, 2, 0)
    if picture.ndim != 3 or picture.shape[2] not in (1, 3, 4) or 0 in picture.shape:
        raise ArgumentError(f"Log.image: a picture of 1, 3 or 4 channels was expected for {tag!r}, "
                            f"not an array of shape {picture.shape}")
    if picture.dtype.kind not in "ui":
        picture = (np.nan_to_num(np.clip(picture.astype(np.float64), 0, 1)) * 255).round()
    return np.ascontiguousarray(np.clip(picture, 0, 255).astype(np.uint8))


def _graph_nodes(data: dict[str, Any]) -> Iterator[bytes]:
    """The nodes of a captured function, named by where they stand."""
    names: dict[int, str] = {}
    for k, param in enumerate(data["params"]):
        yield event_files.graph_node(_param_name(data, k), param["kind"], (), [_sizes(param["type"])], ())
    for node in data["nodes"]:
        origin = data["origins"][node["origin"]] if node["origin"] >= 0 else {}
        scope = names[node["parent"][0]] + f"/{node['parent'][1]}" if node["parent"] else \
            "/".join(filter(None, (origin.get("phase", ""), *origin.get("path", "").split("."))))
        names[node["id"]] = _plain(f"{scope}/{node['op']}_{node['id']}")
        inputs = [_input_name(data, node, x, names) for x in node["inputs"] if isinstance(x, list)]
        attributes = [*node["attrs"].items(), ("line", _line(data, origin))]
        yield event_files.graph_node(names[node["id"]], node["op"], filter(None, inputs), map(_sizes, node["types"]),
                                     attributes)


def _param_name(data: dict[str, Any], k: int) -> str:
    param = data["params"][k]
    return _plain(f"{param['kind']}/{param['name'].replace('.', '/')}_{k}")


def _input_name(data: dict[str, Any], node: dict[str, Any], x: list[int], names: dict[int, str]) -> str:
    if x[0] >= 0:
        return f"{names[x[0]]}:{x[1]}" if x[1] else names[x[0]]
    return _param_name(data, x[1]) if node["parent"] is None else names[node["parent"][0]]


def _line(data: dict[str, Any], origin: dict[str, Any]) -> str:
    return f"{data['files'][origin['file']]['name']}:{origin['line']}" if origin.get("file", -1) >= 0 else ""


def _plain(name: str) -> str:
    """What TensorBoard takes for a name."""
    return re.sub(r"[^A-Za-z0-9_./\\-]", "_", name).lstrip("/_-\\")


def _sizes(type: str) -> list[int]:
    found = SIZES.search(type)
    listed = found[1].split(",") if found and found[1] else []
    return [int(size) if size.strip().isdigit() else -1 for size in listed]
