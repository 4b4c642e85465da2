"""`tenon launch`: processes are started, marked, ended together, and started again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tenon.distributed import launch as launching
from tenon.errors import ArgumentError, CommunicationError

ROOT = Path(__file__).parents[2]
HEAD = ("import os, signal, sys, time\nimport numpy as np\n"
        "from tenon.distributed.mpi_transport import MpiTransport\nfrom tenon.sharding.mesh import Mesh\n"
        "((rank, speaker),) = MpiTransport(Mesh({'data': 2})).begin().items()\n")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tenon", "launch", *arguments]


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OUT": str(tmp_path), "TENON_THREADS": ""}


def ran(tmp_path: Path, text: str, *options: str, arguments: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("mpi4py")
    (tmp_path / "script.py").write_text(text)
    return subprocess.run(command(*options, str(tmp_path / "script.py"), *arguments), env=environment(tmp_path),
                          capture_output=True, text=True, timeout=600, check=False)


def all_gone(tmp_path: Path) -> bool:
    """Whether no process is left that wrote its number; one that nobody asked about yet is gone."""
    until = time.monotonic() + 200
    while any(alive((tmp_path / str(k)).read_text()) for k in range(2)):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def alive(number: str) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_lines_are_marked_by_rank_and_arguments_reach_the_script(tmp_path: Path) -> None:
    found = ran(tmp_path, HEAD + "from tenon.data import DistributedSampler\n"
                "share = DistributedSampler(range(4), shuffle=False)\n"
                "print('sum', speaker.all_reduce(np.ones(2), ('data',)), *share, *sys.argv[1:])", "-n", "2",
                arguments=("--epochs", "3"))
    assert found.returncode == 0, found.stderr
    assert sorted(found.stdout.splitlines()) == [f"[{k}] sum [2. 2.] {k} {k + 2} --epochs 3" for k in range(2)]


def test_an_error_ends_all_with_its_message_and_no_process_is_left(tmp_path: Path) -> None:
    found = ran(tmp_path, HEAD + "open(os.environ['OUT'] + f'/{rank}', 'w').write(str(os.getpid()))\n"
                "if rank == 1: raise ValueError('no such layer')\nspeaker.recv((2,), np.float64, 1, 0)", "-n", "2")
    assert found.returncode == 1
    assert "[1] ValueError: no such layer" in found.stderr
    assert "rank 1 failed: ValueError: no such layer" in found.stderr
    assert all_gone(tmp_path)


def test_a_killed_rank_is_noticed_and_all_start_again(tmp_path: Path) -> None:
    text = HEAD + ("mark = os.environ['OUT'] + '/died'\nagain = os.path.exists(mark)\nspeaker.barrier(('data',))\n"
                   "if rank == 1 and not again:\n    open(mark, 'w').write(str(time.time()))\n"
                   "    os.kill(os.getpid(), signal.SIGKILL)\n"
                   "if rank == 0 and again: open(os.environ['OUT'] + '/again', 'w').write(str(time.time()))\n"
                   "print('sum', speaker.all_reduce(np.ones(2), ('data',)))")
    found = ran(tmp_path, text, "-n", "2", "--max-restarts", "1")
    assert found.returncode == 0, found.stderr
    assert "restart 1 of 1" in found.stderr
    assert found.stdout.count("sum [2. 2.]") == 2
    seconds = float((tmp_path / "again").read_text()) - float((tmp_path / "died").read_text())
    assert seconds < 60         # 0.9 s on a quiet machine


def test_ctrl_c_reaches_the_processes(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    (tmp_path / "script.py").write_text(
        HEAD + "open(os.environ['OUT'] + f'/{rank}', 'w').write(str(os.getpid()))\nspeaker.recv((2,), float, 1 - rank, 0)")
    process = subprocess.Popen(command("-n", "2", str(tmp_path / "script.py")), env=environment(tmp_path),
                               stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 200
    while not all((tmp_path / str(k)).exists() and (tmp_path / str(k)).read_text() for k in range(2)):
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=200)[1]
    assert process.returncode == 130 and "KeyboardInterrupt" in said
    assert all_gone(tmp_path)


def test_missing_mpi_is_an_error_that_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("")
    monkeypatch.setattr(launching, "find_spec", lambda name: None)
    with pytest.raises(CommunicationError, match="no mpi4py") as caught:
        launching.launch(2, [str(script)])
    assert "pip install 'tenon-graph[mpi]'" in str(caught.value.hint)
    monkeypatch.setattr(launching, "find_spec", lambda name: object())
    monkeypatch.setattr(launching.shutil, "which", lambda name, path=None: None)
    with pytest.raises(CommunicationError, match="no mpiexec"):
        launching.launch(2, [str(script)])


@pytest.mark.parametrize("count, script, restarts, said", [
    (0, __file__, 0, "0 processes"), (2, "nowhere.py", 0, "no script 'nowhere.py'"), (2, __file__, -1, "-1 restarts")])
def test_what_cannot_be_started_is_refused(count: int, script: str, restarts: int, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        launching.launch(count, [script], restarts=restarts)
    with pytest.raises(ArgumentError, match="no file 'nobody' of hosts"):
        launching.launch(2, [__file__], hosts=Path("nobody"))


def test_both_families_get_their_own_options() -> None:
    assert launching.family_of("mpiexec (OpenRTE) 4.1.4") == launching.family_of("mpirun (Open MPI) 5.0.3") == "openmpi"
    assert launching.family_of("HYDRA build details:\n Version: 5.0.2") == "mpich"
    hosts = Path("hosts")
    mpich = launching.Launcher("mpiexec", "mpich").command(2, ["a.py", "x"], hosts)
    assert mpich == ["mpiexec", "-prepend-rank", "-f", "hosts", "-n", "2", sys.executable, "a.py", "x"]
    other = launching.Launcher("mpiexec", "openmpi").command(2, ["a.py"], hosts, ["TENON_TIMEOUT"])
    assert other[other.index("-x") + 1] == "TENON_TIMEOUT"          # or it would not reach the other machines
    assert {"--oversubscribe", "--bind-to", "--hostfile", "--tag-output"} <= set(other)
    assert ("--allow-run-as-root" in other) == (os.geteuid() == 0)
