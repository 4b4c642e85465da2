"""Programs for PyTorch, run by Tenon after their imports are changed, and nothing else: the same losses."""

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SOURCE = (Path(__file__).parent / "torch_programs.py").read_text()
IMPORTS = {
    "import torch\n": "import tenon as torch\n", "import torch.nn.functional as F\n": "import tenon.nn.functional as F\n",
    "from torch import nn, optim\n": "from tenon import nn, optim\n",
    "from torch.optim import lr_scheduler\n": "from tenon.optim import lr_scheduler\n"}


def program(source: str, name: str) -> Any:
    module = types.ModuleType("programs")
    exec(compile(source, "torch_programs.py", "exec"), vars(module))
    return vars(module)[name]


def ported() -> str:
    source = SOURCE
    for theirs, ours in IMPORTS.items():
        assert source.count(theirs) == 1
        source = source.replace(theirs, ours)
    return source


NAMES = [name.strip() for name in SOURCE.rpartition("PROGRAMS = (")[2].rstrip(")\n").split(",")]


@pytest.mark.parametrize("name", NAMES)
def test_the_losses_are_pytorchs(name: str) -> None:
    wanted, found = program(SOURCE, name)(), program(ported(), name)()
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=1e-6)
