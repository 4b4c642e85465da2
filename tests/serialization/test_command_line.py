"""`tenon info`, `tenon show` and `tenon run` on files that `tn.save` wrote."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import cli, nn


@pytest.fixture
def model(tmp_path: Path) -> str:
    net = nn.Linear(3, 2)
    net.load_state_dict({"weight": tn.ones(2, 3), "bias": tn.tensor([0.0, 1.0])})

    def scaled(x: Any, k: Any, mode: str) -> Any:
        return {"y": net(x) * k, "mode": mode}
    tn.save(tmp_path / "m.safetensors", {"scores": (net, ["f32[B, 3]"]), "scaled": (scaled, ["f32[B, 3]", "i64", "a"])})
    return str(tmp_path / "m.safetensors")


def test_info_lists_functions_and_tensors(model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["info", model]) == 0
    said = capsys.readouterr().out
    assert "function scores(x: f32[B, 3])" in said and "function scaled(x: f32[B, 3], k: i64, mode = 'a')" in said
    assert "tensor weight  f32[2, 3]  trained" in said and "format 1, written by Tenon" in said
    tn.save({"a": tn.ones(2)}, tmp_path / "plain", metadata={"note": "mine"})
    assert cli.main(["info", str(tmp_path / "plain")]) == 0
    assert "tensor a  f32[2]" in (said := capsys.readouterr().out) and "metadata note: mine" in said


def test_run_takes_files_names_and_numbers(model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    x = str(tmp_path / "x.npy")
    assert cli.main(["run", model, "--input", x, "--output", str(tmp_path / "y.npy")]) == 0
    assert np.load(tmp_path / "y.npy").tolist() == [[3, 4], [3, 4]]
    assert cli.main(["run", model, "--function", "scaled", "--input", "k=2", "--input", x]) == 0
    assert "result_0: tensor([[6., 8.],\n        [6., 8.]]" in (said := capsys.readouterr().out)
    assert "result_1: a" in said


def test_show_prints_the_stages_of_a_saved_function(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    for where in (model, f"{model}:scores"):
        assert cli.main(["show", where, "--stages", "graph,loops"]) == 0
        assert "def scores(x: f32[B, 3], weight: f32[2, 3], bias: f32[2]):" in (said := capsys.readouterr().out) and "# kernel" in said


@pytest.mark.parametrize(("command", "words"), [
    (["run", "MODEL"], "there is no input for x"), (["run", "MODEL", "--input", "nowhere.npy"], "there is no file"),
    (["run", "MODEL", "--input", "MODEL"], "is no .npy file"), (["run", "MODEL", "--function", "f"], "no function 'f'"),
    (["run", "MODEL", *["--input", "1"] * 2], "an input '1' more"), (["info", "nowhere"], "there is no file"),
    (["show", "MODEL:f"], "has no function 'f'"), (["run", "PLAIN"], "holds tensors, and no function"),
    (["run", "MODEL", "--input", "OBJECTS"], "is no .npy file")])
def test_mistakes_are_named(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str],
                            words: str) -> None:
    tn.save({"a": tn.ones(2)}, tmp_path / "plain")
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    files = {"MODEL": model, "PLAIN": str(tmp_path / "plain"), "OBJECTS": str(tmp_path / "objects.npy")}
    for name, file in files.items():
        command = [part.replace(name, file) for part in command]
    assert cli.main(command) == 1
    assert words in capsys.readouterr().err
