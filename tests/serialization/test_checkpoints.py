"""A run that was interrupted goes on as if it had not been; a save that is killed leaves the file before or the new."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tenon as tn
from tenon import nn, optim
from tenon.errors import ArgumentError

HERE = Path(__file__).parent


def script(name: str, *args: object) -> str:
    return subprocess.run([sys.executable, str(HERE / name), *map(str, args)], check=True, capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": str(HERE.parents[1])}).stdout


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_goes_on_bit_for_bit_wherever_it_ended(tmp_path: Path, workers: int) -> None:
    whole = script("training.py", tmp_path / "whole", 0, workers)
    assert whole.count("\n") == 18
    parts = [script("training.py", tmp_path / "run", stop, workers) for stop in (2, 6, 9, 0)]
    assert "".join(parts) == whole


def test_a_killed_save_leaves_the_old_model_or_the_new(tmp_path: Path) -> None:
    versions, files = map(int, script("killed_saves.py", tmp_path / "model", 100).split())
    assert versions > 5 and files == 1


def test_a_file_of_another_run_changes_nothing(tmp_path: Path) -> None:
    net, other = nn.Linear(2, 2), nn.Linear(3, 2)
    opt = optim.SGD(other.parameters(), lr=0.1)
    tn.Checkpoint(tmp_path / "a", net=net, opt=optim.SGD(net.parameters(), lr=0.5)).save()
    before = str(other.state_dict()), str(opt.state_dict())
    for run in (tn.Checkpoint(tmp_path / "a", opt=opt, net=other), tn.Checkpoint(tmp_path / "a", net=other)):
        with pytest.raises(ArgumentError):
            run.restore()
        assert (str(other.state_dict()), str(opt.state_dict())) == before
    assert tn.Checkpoint(tmp_path / "none", net=net).restore() == {}
    with pytest.raises(ArgumentError, match="count is a int, which has no state_dict"):
        tn.Checkpoint(tmp_path / "a", count=3)


def test_a_loader_goes_on_with_the_next_batch() -> None:
    data = tn.data.TensorDataset(tn.arange(10))

    def loader() -> Any:
        return tn.data.DataLoader(data, batch_size=3, shuffle=True, seed=2)
    one, two = loader(), loader()
    first = iter(one)
    next(first), next(first)
    two.load_state_dict(one.state_dict())
    rest = [x.tolist() for x, in first]
    assert [x.tolist() for x, in two] == rest and len(rest) == 2
    assert [x.tolist() for x, in two] == [x.tolist() for x, in one]
    with pytest.raises(ArgumentError, match="what state_dict"):
        two.load_state_dict({"taken": 1})
