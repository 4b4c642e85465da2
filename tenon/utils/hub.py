"""Weights from the network, as programs for PyTorch fetch them: `load_state_dict_from_url`."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import urlopen

from tenon.errors import ArgumentError
from tenon.serialization.weight_files import load_weights

__all__ = ["download_url_to_file", "get_dir", "load_state_dict_from_url", "load_url"]

HASH = re.compile(r"-([a-f0-9]{8,})\.")     # of a file, in its name


def get_dir() -> str:
    """Where files are kept: `TORCH_HOME/hub`, or `~/.cache/torch/hub`."""
    return os.path.join(os.environ.get("TORCH_HOME") or os.path.expanduser("~/.cache/torch"), "hub")


def download_url_to_file(url: str, dst: Any, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Fetch a file; raises ArgumentError, and keeps nothing, where its SHA-256 begins otherwise."""
    part, found = Path(f"{dst}.{os.getpid()}.part"), hashlib.sha256()
    try:
        with urlopen(url) as source, open(part, "xb") as file:
            while data := source.read(1 << 20):
                found.update(data)
                file.write(data)
        if hash_prefix is not None and not found.hexdigest().startswith(hash_prefix):
            raise ArgumentError(f"download_url_to_file: {url} has the hash {found.hexdigest()}, not {hash_prefix}...")
        part.replace(dst)
    finally:
        part.unlink(missing_ok=True)


def load_state_dict_from_url(url: str, model_dir: str | None = None, map_location: Any = None, progress: bool = True,
                             check_hash: bool = False, file_name: str | None = None,
                             weights_only: bool = False) -> dict[str, Any]:
    """The tensors of a file of weights, which is fetched unless it is in the folder."""
    folder = Path(model_dir or os.path.join(get_dir(), "checkpoints"))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / (file_name or os.path.basename(urlparse(url).path))
    if not file.exists():
        said = HASH.search(file.name) if check_hash else None
        download_url_to_file(url, file, said[1] if said else None, progress)
    return load_weights(file)


load_url = load_state_dict_from_url
