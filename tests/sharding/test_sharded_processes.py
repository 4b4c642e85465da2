"""The same step in two processes: the bits of two threads; parts that are elsewhere are asked for by gather."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
import tenon as tn
from sharded_models import Mlp, trained
from tenon.distributed import Mesh, gather
from tenon.errors import CommunicationError

seen = []
losses, _ = trained(Mlp, Mesh({"data": 2}), data=("data",), rules="data", steps=3, size=7, seen=seen)
step, net, optimizer = seen
try:
    net.up.weight.detach().numpy()
except CommunicationError as error:       # it is in parts
    print("told:", "tn.distributed.gather" in str(error))
weight = gather(net.up.weight)
print(weight.detach().numpy().tobytes().hex()[:64], net.up.weight.shape)
"""


def lines(tmp_path: Path, *before: str) -> list[str]:
    (tmp_path / "script.py").write_text(SCRIPT)
    found = subprocess.run([sys.executable, *before, str(tmp_path / "script.py")], capture_output=True, text=True,
                           env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}, timeout=600, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout.splitlines()


def test_processes_compute_the_bits_of_threads(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    (alone,) = lines(tmp_path)
    together = lines(tmp_path, "-m", "tenon", "launch", "-n", "2")
    assert sorted(together) == sorted(f"[{rank}] {text}" for rank in (0, 1) for text in ("told: True", alone))
