"""What processes cost that speak to each other: sums of large arrays, small messages, data-parallel steps.

    TENON_THREADS=1 python -m benchmarks.distributed [--seconds 1] [--only sums,messages,scaling,faults]

It starts two processes by `mpiexec`, and for PyTorch two with gloo.  All of a table is measured in turns in one run.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

MEGABYTE = 1 << 20
SIZE = 64 * MEGABYTE
ROUNDS = 200            # messages there and back at a time


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", default="sums,messages,scaling,faults")
    arguments = parser.parse_args(argv)
    if find_spec("mpi4py") is None:
        print("no MPI: pip install 'tenon-graph[mpi]'")
        return
    for name in arguments.only.split(","):
        if name == "faults":
            faults()
        elif name == "scaling":
            for model in ("gpt", "resnet18"):
                scaling(model, arguments.seconds)
        else:
            start(["mpiexec", "-n", "2"], name, str(arguments.seconds))


def start(launcher: list[str], *arguments: str) -> None:
    """Run a part of this file in the processes of a launcher, its output shown."""
    print(run(launcher, *arguments), end="", flush=True)


def run(launcher: list[str], *arguments: str) -> str:
    beside = Path(sys.executable).parent / "mpiexec"
    command = [str(beside) if word == "mpiexec" and beside.exists() else word for word in launcher]
    done = subprocess.run([*command, sys.executable, "-m", "benchmarks.distributed_ranks", *arguments],
                          env={**os.environ, "TENON_THREADS": "1", "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE,
                          text=True, check=True)
    return done.stdout


def scaling(model: str, seconds: float) -> None:
    """Steps of one process of one core, and of two that share the batch; Tenon, and PyTorch's DDP over gloo."""
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for who in ("tenon", "torch"):
            if who == "torch" and find_spec("torch") is None:
                continue
            times = []
            for count in (1, 2):
                if who == "torch":
                    rendezvous = f"file://{folder}/{model}{count}"
                    ranks = [subprocess.Popen([sys.executable, "-m", "benchmarks.distributed_ranks", "torch", model,
                                               str(count), str(rank), rendezvous, str(seconds)], text=True,
                                              env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE)
                             for rank in range(count)]
                    printed = [rank.communicate()[0] for rank in ranks]
                    times.append(float(printed[0]))
                else:
                    times.append(float(run(["mpiexec", "-n", str(count)], "tenon", model, str(seconds))))
            rows.append((who, *times))
    for who, one, two in rows:
        print(f"{model:9} {who:6} 1 process {one * 1e3:8.1f} ms   2 processes {two * 1e3:8.1f} ms   {one / two:.2f}x",
              flush=True)


def faults() -> None:
    """A rank is killed: when the launcher says so, and when the first step after the restart ends."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text("import sys\nfrom benchmarks.distributed_ranks import main\nmain('faulty', *sys.argv[1:])\n")
        root = str(Path(__file__).parent.parent)
        process = subprocess.Popen(
            [sys.executable, "-m", "tenon", "launch", "-n", "2", "--max-restarts", "1", str(script), folder],
            env={**os.environ, "PYTHONPATH": root, "TENON_THREADS": "1"}, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        seen = next(time.time() for line in process.stderr if "restart 1 of 1" in line)
        assert process.wait() == 0
        killed, again = (float((Path(folder) / name).read_text()) for name in ("killed", "again"))
    print(f"kill -9 of a rank      seen after {seen - killed:.2f} s, training again {again - seen:.2f} s later",
          flush=True)


if __name__ == "__main__":
    main()
