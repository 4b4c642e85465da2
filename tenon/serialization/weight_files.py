"""Files of weights, of whatever program -> tensors by name, for `load_state_dict`.

    net.load_state_dict(tn.load_weights("model.safetensors.index.json"))
    net.load_state_dict(tn.load_weights("checkpoint.pth", names={"fc.weight": "out.weight"}), strict=False)

Elements stay in the file until they are looked at: it is mapped into memory, not read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tenon import tensor_file
from tenon.errors import ArgumentError
from tenon.interop.torch_checkpoints import read_torch_checkpoint
from tenon.tensor import Tensor
from tenon.tensor_file import distinct

TORCH = (".pt", ".pth", ".bin", ".ckpt")
INDEX, LARGEST_INDEX = ".index.json", 100_000_000
Names = Mapping[str, str | None] | Callable[[str], str | None]


def load_weights(path: Any, *, names: Names | None = None, dtype: Any = None) -> dict[str, Tensor]:
    """The tensors of a file of weights by name.

    `path` is a safetensors file, the index of several (`*.safetensors.index.json`), a folder with one of these, or a
    checkpoint of PyTorch's (`.pt`, `.pth`, `.bin`), which PyTorch reads as weights only.  `names` says what a tensor is
    called here, as a dictionary or a function; None leaves it out, and what a dictionary does not name keeps its name.
    `dtype` converts floating elements.

    Raises ArgumentError where a file is missing or damaged, lies outside of the folder of its index, or lacks a tensor
    that the index says it has, and where two tensors get one name.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "w.safetensors"
    >>> tn.save({"fc.weight": tn.ones(2, 3)}, path)
    >>> net = nn.Linear(3, 2)
    >>> net.load_state_dict(tn.load_weights(path, names=lambda name: name.removeprefix("fc.")), strict=False)
    DifferingKeys(missing_keys=['bias'], unexpected_keys=[])
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentError(f"load_weights: a path was expected, not {type(path).__name__}")
    found: dict[str, Tensor] = {}
    for name, tensor in _tensors(Path(path)):
        called = _called(name, names)
        if called in found:
            raise ArgumentError(f"load_weights: two tensors are called {called!r}; one is {name!r} in the file")
        if called is not None:
            found[called] = tensor.astype(dtype) if dtype is not None and tensor.dtype.is_floating else tensor
    return found


def _called(name: str, names: Names | None) -> str | None:
    if names is None:
        return name
    return names.get(name, name) if isinstance(names, Mapping) else names(name)


def _tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a file, of the files of an index, or of a folder."""
    if path.is_dir():
        path = _in_folder(path)
    if path.name.endswith(INDEX):
        yield from _of_index(path)
    elif path.suffix in TORCH:
        yield from read_torch_checkpoint(_existing(path)).items()
    else:
        yield from _of_file(_existing(path)).items()


def _of_file(path: Path) -> dict[str, Tensor]:
    try:
        arrays, _ = tensor_file.mapped(path)
    except tensor_file.DamagedFile as error:
        raise ArgumentError(f"load_weights: {os.fspath(path)!r} is no safetensors file, or damaged",
                            why=error.what) from None
    return {name: Tensor(array) for name, array in arrays.items()}


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise ArgumentError(f"load_weights: there is no file {os.fspath(path)!r}")
    return path


def _in_folder(folder: Path) -> Path:
    """The one file of weights, or index, of a folder; safetensors before PyTorch's."""
    for pattern in ("*.safetensors" + INDEX, "*.safetensors", "*.bin" + INDEX, "*.bin", "*.pth", "*.pt"):
        found = sorted(folder.glob(pattern))
        if len(found) > 1:
            raise ArgumentError(f"load_weights: {os.fspath(folder)!r} holds {', '.join(p.name for p in found[:4])}",
                                hint="say which one, or the index of all")
        if found:
            return found[0]
    raise ArgumentError(f"load_weights: {os.fspath(folder)!r} holds no weights that are known")


def _of_index(path: Path) -> Iterator[tuple[str, Tensor]]:
    """The tensors that an index names, file by file, in its order."""
    places = _places(path)
    for name in dict.fromkeys(places.values()):
        if name in ("", ".", "..") or Path(name).name != name or "\\" in name:
            raise ArgumentError(f"load_weights: {os.fspath(path)!r} names {name!r}, which is no file beside it")
        held = dict(_tensors(path.with_name(name)))
        wanted = [tensor for tensor, file in places.items() if file == name]
        if missing := [tensor for tensor in wanted if tensor not in held]:
            raise ArgumentError(f"load_weights: {name!r} does not hold {', '.join(missing[:4])}, as the index says")
        yield from ((tensor, held[tensor]) for tensor in wanted)


def _places(path: Path) -> dict[str, str]:
    """The file of every tensor."""
    if _existing(path).stat().st_size > LARGEST_INDEX:
        raise ArgumentError(f"load_weights: {os.fspath(path)!r} is too large for an index")
    try:
        read = json.loads(path.read_bytes(), object_pairs_hook=distinct)
        places = read["weight_map"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise ArgumentError(f"load_weights: {os.fspath(path)!r} is no index", why=str(error)[:200]) from None
    if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
        raise ArgumentError(f"load_weights: {os.fspath(path)!r} is no index", why="its weight_map names no files")
    return places
