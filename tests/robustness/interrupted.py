"""Interrupts at random moments of a program -> what each found, against the states of a run that nobody disturbed.

    python interrupted.py jit 1000      # which program of PROGRAMS, and how many interrupts

Half of them raise, as Ctrl-C does; half look, as a handler does that saves a checkpoint.  Every state seen must be, bit
for bit, one of the undisturbed run's, and the one that the program's own counters say.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tenon as tn
from tenon import nn, optim

LONG = 120          # steps until a program begins again
MOST = 20_000       # steps without the interrupt that was asked for


class Program:
    """Tensors, what changes them, and what Python counts beside them."""

    whole = True        # whether the whole step is done or nothing, and can be made again after an interrupt

    def __init__(self) -> None:
        self.count, self.seen = 0, []
        self.make()
        self.begun = [x.numpy().copy() for x in self.tensors()]

    def make(self) -> None:
        """The tensors."""
        self.s, self.w = tn.ones(40, 40), tn.zeros(40, 40)

    def tensors(self) -> list[Any]:
        """All that a step changes."""
        return [self.s, self.w]

    def advance(self) -> Any:
        """What is interrupted."""
        raise NotImplementedError

    def counted(self) -> tuple[int, ...]:
        """What Python counts."""
        return self.count, len(self.seen)

    def fingerprint(self) -> str:
        """All of it."""
        found = hashlib.blake2b()
        for x in self.tensors():
            found.update(x.numpy().tobytes())
        return f"{self.counted()} {found.hexdigest()[:16]}"

    def begin_again(self) -> None:
        for x, first in zip(self.tensors(), self.begun, strict=True):
            x.assign(tn.tensor(first))
        self.count = 0
        self.seen.clear()

    def undisturbed(self) -> set[str]:
        """The states of a run."""
        found = {self.fingerprint()}
        for _ in range(LONG):
            self.advance()
            found.add(self.fingerprint())
        return found


class Jit(Program):
    """One tensor is updated in place, another gets new memory; a counter and a list grow."""

    def make(self) -> None:
        super().make()
        self.a = tn.rand(40, 40, generator=tn.random.Generator(0)) / 40

    def advance(self) -> Any:
        return self.compiled()

    @tn.jit
    def compiled(self) -> Any:
        self.count += 1
        self.seen.append(None)
        self.s.assign(self.s @ self.a + 1)
        self.w.assign(self.w * 0.5 + self.s * 100)
        return self.s.sum()


class Large(Jit):
    """The same beside other threads of Python, since it takes long, and on all threads of the pool."""

    def make(self) -> None:
        self.s, self.w = tn.ones(400, 400), tn.zeros(400, 400)
        self.a = tn.rand(400, 400, generator=tn.random.Generator(0)) / 400


class Loops(Program):
    """A loop that the data end, within which a signal is answered, and one of so many turns."""

    def advance(self) -> Any:
        return self.compiled()

    @tn.jit
    def compiled(self) -> Any:
        self.count += 1
        x = self.s
        while x.sum() > -900.0:
            x = x - 1.5
        for _ in range(3):
            x = x + self.w * 0.25
        self.w.assign(self.w * 0.5 + x * 0.01)
        self.s.assign(self.s * 0.5 + tn.sin(self.w) + 1)
        self.seen.append(None)


class Training(Program):
    """Adam and batch norm, whose state changes with the weights."""

    def make(self) -> None:
        tn.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(20, 30), nn.BatchNorm1d(30), nn.ReLU(), nn.Linear(30, 5))
        self.optimizer = self.optimizer_of(self.net.parameters())
        self.x, self.y = tn.randn(16, 20), tn.randint(0, 5, (16,))

    def optimizer_of(self, parameters: Iterator[Any]) -> Any:
        return optim.Adam(parameters, lr=0.01)

    def tensors(self) -> list[Any]:
        groups = self.optimizer.param_groups
        slots = [x for g in groups for x in (g.held("step"), *(y for z in g.slots.values() for y in z))]
        return [*self.net.parameters(), *self.net.buffers(), *slots]

    def advance(self) -> Any:
        return self.compiled()

    @tn.jit
    def compiled(self) -> Any:
        self.count += 1
        loss = nn.cross_entropy(self.net(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.seen.append(None)
        return loss


class Momentum(Training):
    """SGD with momentum, whose gradients stay."""

    def optimizer_of(self, parameters: Iterator[Any]) -> Any:
        return optim.SGD(parameters, lr=0.01, momentum=0.9)

    def tensors(self) -> list[Any]:
        gradients = [p.grad for p in self.net.parameters() if p.grad is not None]
        return [*super().tensors(), *gradients]

    def begin_again(self) -> None:
        self.optimizer.zero_grad()
        super().begin_again()

    @tn.jit
    def compiled(self) -> Any:
        self.count += 1
        self.optimizer.zero_grad()
        loss = nn.cross_entropy(self.net(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        self.seen.append(None)
        return loss


class Eager(Program):
    """Each statement is a state."""

    whole = False

    def advance(self, note: Callable[[], None] = lambda: None) -> Any:
        self.count += 1
        note()
        self.s.assign(self.s + 1.0)
        note()
        self.w.assign(self.w * 0.5 + self.s)
        note()
        self.seen.append(None)

    def undisturbed(self) -> set[str]:
        found = {self.fingerprint()}
        for _ in range(LONG):
            self.advance(lambda: found.add(self.fingerprint()))
            found.add(self.fingerprint())
        return found


class Parts(Eager):
    """So it is where a function runs with graph breaks."""

    def make(self) -> None:
        self.s, self.w = tn.ones(500, 400), tn.zeros(500, 400)

    @tn.jit
    def graph_breaks(self) -> Any:
        time.time_ns()
        Eager.advance(self)

    def advance(self, note: Callable[[], None] | None = None) -> Any:
        return self.graph_breaks() if note is None else super().advance(note)


class Saving(Jit):
    """The file that is written again and again holds such a state, too."""

    def make(self) -> None:
        super().make()
        self.path = Path(tempfile.mkdtemp()) / "state.safetensors"

    def advance(self) -> Any:
        super().advance()
        tn.save({"s": self.s, "w": self.w}, self.path)

    def fingerprint(self) -> str:
        now = super().fingerprint()
        if self.path.exists():
            saved = tn.load(self.path)
            found = hashlib.blake2b(saved["s"].numpy().tobytes() + saved["w"].numpy().tobytes()).hexdigest()[:16]
            assert os.listdir(self.path.parent) == [self.path.name] or self.at_work
            assert found in self.known
        return now

    at_work = True

    def undisturbed(self) -> set[str]:
        self.path.unlink(missing_ok=True)
        path, self.path = self.path, Path("none")
        found = {self.fingerprint()}
        for _ in range(LONG):
            super().advance()
            found.add(self.fingerprint())
        self.path, self.known = path, {x.split()[-1] for x in found}
        return found


PROGRAMS: dict[str, type[Program]] = {kind.__name__.lower(): kind for kind in (
    Eager, Jit, Large, Loops, Training, Momentum, Parts, Saving)}


def timed(function: Callable[[], Any]) -> float:
    """The seconds that a call takes."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def disturb(program: Program, times: int, seed: int) -> dict[str, int]:
    """How many of so many interrupts found a state that is none, which is to be 0, and how many were lost."""
    known = program.undisturbed()
    program.begin_again()
    a_step = min(timed(program.advance) for _ in range(20))
    found = {"wrong": 0, "lost": 0, "raised": 0, "looked": 0}
    draw = random.Random(seed)
    looked: list[str] = []
    handlers: Any = signal.default_int_handler, lambda *_: looked.append(program.fingerprint())
    for turn in range(times):
        if program.count >= LONG - 40 or not program.whole:
            program.begin_again()
        looked.clear()
        signal.signal(signal.SIGALRM, handlers[turn % 2])
        answer = None
        try:
            signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-6, 3 * a_step + 1e-4))
            for _ in range(MOST):
                program.advance()
                if looked or program.count >= LONG:
                    break
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            answer = program.fingerprint()
        looked += [] if answer is None else [answer]
        found["lost"] += not looked
        found["raised" if turn % 2 == 0 else "looked"] += len(looked)
        found["wrong"] += sum(state not in known for state in looked)
    return found


if __name__ == "__main__":
    print(json.dumps(disturb(PROGRAMS[sys.argv[1]](), int(sys.argv[2]), seed=int((sys.argv[3:] or ["0"])[0]))))
