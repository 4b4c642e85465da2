"""A script and a number -> so many processes of it, started by the `mpiexec` that is installed; again when one fails.

    code = launch(4, ["train.py", "--epochs", "3"], restarts=2)
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from tenon.config import usable_cores
from tenon.errors import ArgumentError, CommunicationError
from tenon.records import dataclass

INSTALL = "pip install 'tenon-graph[mpi]' brings mpi4py and MPICH; or install Open MPI and mpi4py"
FORWARDED = (signal.SIGINT, signal.SIGTERM)
GRACE = 5.0             # seconds that processes have to end after they were asked to
INTERRUPTED = 130       # the exit code of what Ctrl-C ended
PARENT_DEATH = 1        # prctl's PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Launcher:
    """An `mpiexec`, and what it calls the options that are used here."""

    path: str
    family: str             # "mpich" or "openmpi"

    def command(self, count: int, script: Sequence[str], hosts: Path | None, names: Iterable[str] = ()) -> list[str]:
        """What to run: lines are marked by rank, nothing is bound to cores, more processes than cores are allowed.

        Variables of these `names` reach other machines; MPICH takes all there are.
        """
        if self.family == "openmpi":
            options = ["--tag-output", "--oversubscribe", "--bind-to", "none"]
            options += ["--allow-run-as-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
            options += [] if hosts is None else ["--hostfile", str(hosts), *(x for name in names for x in ("-x", name))]
        else:
            options = ["-prepend-rank"] + ([] if hosts is None else ["-f", str(hosts)])
        return [self.path, *options, "-n", str(count), sys.executable, *script]


def launch(count: int, script: Sequence[str], hosts: Path | None = None, restarts: int = 0,
           timeout: float | None = None, say: Callable[[str], object] = lambda text: None) -> int:
    """Run `script` (a file and its arguments) in so many processes; the exit code.

    Where one fails, all are ended; then all are started again, at most `restarts` times.  A process waits `timeout`
    seconds for another one.  Raises ArgumentError for a number below 1 or a file that there is not, CommunicationError
    where MPI is missing.
    """
    if count < 1:
        raise ArgumentError(f"launch: {count} processes cannot be started", hint="tenon launch -n 2 train.py")
    if restarts < 0:
        raise ArgumentError(f"launch: {restarts} restarts cannot be made")
    if not script or not Path(script[0]).is_file():
        raise ArgumentError(f"launch: there is no script {script[0]!r}" if script else "launch: no script is named",
                            hint="tenon launch -n 2 train.py")
    if hosts is not None and not hosts.is_file():
        raise ArgumentError(f"launch: there is no file {str(hosts)!r} of hosts", hint="a host's name a line")
    environment = environment_for(count, hosts, timeout)
    names = sorted(name for name in environment if name == "PYTHONPATH" or name.startswith("TENON_"))
    command = find_launcher().command(count, script, hosts, names)
    for attempt in range(restarts + 1):
        code, stopped = run(command, environment)
        if code == 0 or stopped:
            return code
        if attempt < restarts:
            say(f"tenon launch: the processes ended with code {code}; restart {attempt + 1} of {restarts}")
    say(f"tenon launch: the processes ended with code {code}")
    return code


def find_launcher() -> Launcher:
    """The `mpiexec` beside this Python, or on the path.  Raises CommunicationError where there is none."""
    if find_spec("mpi4py") is None:
        raise CommunicationError("launch: MPI is not installed: there is no mpi4py", hint=INSTALL)
    beside = str(Path(sys.executable).parent)
    path = shutil.which("mpiexec", path=beside) or shutil.which("mpiexec")
    if path is None:
        raise CommunicationError("launch: MPI is not installed: there is no mpiexec", hint=INSTALL)
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
    return Launcher(path, family_of(said.stdout + said.stderr))


def family_of(version: str) -> str:
    """Whose options an `mpiexec` takes, by what it says of its version."""
    return "openmpi" if "Open MPI" in version or "OpenRTE" in version or "prte" in version.lower() else "mpich"


def environment_for(count: int, hosts: Path | None, timeout: float | None) -> Mapping[str, str]:
    """That of the processes: the cores are shared out among those of this machine, where nobody said otherwise."""
    here = count if hosts is None else 1
    shared = {"TENON_THREADS": str(max(1, usable_cores() // here))} if hosts is None else {}
    limit = {} if timeout is None else {"TENON_TIMEOUT": f"{timeout:g}"}
    return {**shared, **os.environ, **limit}


def run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, bool]:
    """The exit code of the processes, and whether a signal to this one ended them."""
    received: list[int] = []
    process = subprocess.Popen(command, env=dict(environment), start_new_session=True, preexec_fn=die_with_parent)

    def forward(number: int, frame: object) -> None:
        received.append(number)
        with suppress(ProcessLookupError):
            process.send_signal(number)
    before = {number: signal.signal(number, forward) for number in FORWARDED}
    try:
        while (code := waited(process, GRACE if received else None)) is None:
            if received:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                received.append(signal.SIGKILL)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return (INTERRUPTED if received and received[0] == signal.SIGINT else 128 - code if code < 0 else code,
            bool(received))


def waited(process: subprocess.Popen[bytes], grace: float | None) -> int | None:
    """The exit code, where the process ends in time; who waits without end looks up now and then, for signals."""
    try:
        return process.wait(0.5 if grace is None else grace)
    except subprocess.TimeoutExpired:
        return None


def die_with_parent() -> None:
    """Where Linux offers it: end `mpiexec`, and its processes with it, when this process is killed."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGTERM)
