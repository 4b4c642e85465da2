"""tools/fingerprint.py: the same hashes in every process, and what differs by name."""

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parent.parent / "tools" / "fingerprint.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(TOOL), *arguments], capture_output=True, text=True)


def test_another_process_finds_the_same_and_a_change_is_named(tmp_path: Path) -> None:
    first = run("mlp")
    before = tmp_path / "before.txt"
    before.write_text(first.stdout)
    same = run("mlp", "--compare", str(before))
    assert (same.returncode, same.stdout) == (0, f"{len(first.stdout.splitlines())} hashes, all as before\n")
    lines = first.stdout.splitlines()
    name, _, _ = lines[1].rpartition(" ")
    before.write_text("\n".join([lines[0], f"{name} 0", "mlp llvm lost 1 0", *lines[3:]]))
    changed = run("mlp", "--compare", str(before))
    new, _, _ = lines[2].rpartition(" ")
    assert (changed.returncode, changed.stdout) == (1, f"gone: mlp llvm lost 1\nnew: {new}\ndiffers: {name}\n")


def test_a_model_that_is_none_is_told() -> None:
    assert "no model is named cnn" in run("cnn").stderr
