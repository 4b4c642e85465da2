"""Tenon against frozen samples of PyTorch's operators: outputs to 1e-9, gradients to 1e-7, in float64."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
JUDGES = Path(os.environ.get("TENON_JUDGES", ROOT.parent / "shared" / "judges"))
AGREEING = 476      # operators that agree in every sample; raise it when there are more


@pytest.mark.skipif(not (JUDGES / "opinfo_judge.py").exists(), reason="the frozen samples are not here (TENON_JUDGES)")
def test_operators_agree_with_pytorch_and_none_is_wrong() -> None:
    path = os.pathsep.join([str(ROOT), str(HERE)])
    judged = subprocess.run(
        [sys.executable, str(JUDGES / "opinfo_judge.py"), "--dir", str(JUDGES / "opinfo"),
         "--adapter", "opinfo_adapter:Adapter"],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path})
    print(judged.stdout)
    found = re.search(r"ops (\d+) fully ok (\d+) ", judged.stdout)
    assert found, judged.stdout + judged.stderr
    assert "wrong" not in judged.stdout, judged.stdout
    assert int(found[2]) >= AGREEING, judged.stdout
