"""Other frameworks as judges. `make test-interop` installs them; a file is named after the one that it needs."""

from importlib.util import find_spec

import pytest

JUDGES = ("torch", "onnx", "onnxruntime")

collect_ignore_glob = [f"{prefix}{judge}_*.py" for judge in JUDGES if not find_spec(judge) for prefix in ("", "test_")]


@pytest.fixture(autouse=True)
def same_weights_in_every_run() -> None:
    if find_spec("torch"):
        import torch

        torch.manual_seed(0)
