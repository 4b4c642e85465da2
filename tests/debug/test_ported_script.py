"""`tenon port script.py`: a script for PyTorch runs with nothing but its imports changed, and keeps its lines."""

import sys
from pathlib import Path

import pytest

from tenon import cli
from tenon.debug.ported_script import changed_imports
from tenon.debug.porting import PortingWarning

SCRIPT = '''\
import argparse, torch, torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import (DataLoader,
                              TensorDataset)
import torch.optim
if True: from torch.nn.utils.rnn import pad_sequence; kept = 1

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = TensorDataset(torch.randn(32, 4), torch.randint(0, 3, (32,)))
for epoch in range(args.epochs):
    for x, y in DataLoader(data, batch_size=8):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
if __name__ == "__main__":
    print("epochs", args.epochs, type(loss).__module__, F.relu(torch.ones(2)).std().item())
'''


def script(folder: Path, text: str = SCRIPT) -> str:
    path = folder / "train.py"
    path.write_text(text)
    return str(path)


def test_a_script_runs_with_its_own_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main, path = sys.modules["__main__"], sys.path[:]
    with pytest.warns(PortingWarning, match="std: PyTorch gives a division by n - 1") as found:
        assert cli.main(["port", script(tmp_path), "--epochs", "2"]) == 0
    assert capsys.readouterr().out == "epochs 2 tenon.tensor 0.0\n"
    assert found[0].filename.endswith("train.py") and found[0].lineno == 22
    assert sys.modules["__main__"] is main and sys.path == path


def test_what_a_script_raises_names_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["port", script(tmp_path, "import torch\n\nx = 1 / 0\n")]) == 1
    error = capsys.readouterr().err
    assert "ZeroDivisionError" in error and "train.py:3" in error
    assert cli.main(["port", script(tmp_path, "import torch\nimport (\n")]) == 1
    assert "train.py:2" in capsys.readouterr().err
    assert cli.main(["port", script(tmp_path, "import torch\ntorch.ones(2) @ torch.ones(3)\n")]) == 1
    assert "matmul" in (error := capsys.readouterr().err) and "train.py:2" in error
    assert cli.main(["port", str(tmp_path / "nowhere.py")]) == 1


def test_a_script_is_written_with_its_imports_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = tmp_path / "ported.py"
    assert cli.main(["port", "--output", str(written), script(tmp_path)]) == 0
    assert "6 lines are other ones" in capsys.readouterr().out
    lines = written.read_text().splitlines()
    assert lines[:2] == ["import argparse; import tenon as torch; import tenon.nn as nn", "import tenon.nn.functional as F"]
    assert lines[2:6] == ["from tenon.utils.data import DataLoader, TensorDataset", "", "import tenon.optim; import tenon as torch",
                          "if True: from tenon.nn.utils.rnn import pad_sequence; kept = 1"]
    assert lines[6:] == SCRIPT.splitlines()[6:]


def test_other_imports_stay() -> None:
    text = "import torchvision\nfrom torchtext import data\nfrom .torch import x\ns = 'import torch'\n# import torch\n"
    assert changed_imports(text) == text
    assert changed_imports("def f():\n    é = 1; import torch as t\n") == "def f():\n    é = 1; import tenon as t\n"


def test_modules_whose_names_are_elsewhere() -> None:
    text = """from torch.utils.data.dataset import Dataset
from torch.utils.data.sampler import SubsetRandomSampler
from torch.distributions.normal import Normal
from torch.distributions.transforms import ExpTransform
from torch.nn.parameter import Parameter
from torch.nn.modules.module import Module
from torch.autograd.functional import jacobian
from torch.cuda.amp import autocast, GradScaler
from torch.optim.lr_scheduler import _LRScheduler, LambdaLR
import torch.backends.cudnn as cudnn
import torch.backends.cudnn
cudnn.deterministic = torch.backends.cudnn.enabled = True
"""
    names: dict[str, object] = {}
    exec(changed_imports(text), names)
    assert names["Normal"].__module__.startswith("tenon.") and names["cudnn"].deterministic     # type: ignore[attr-defined]
