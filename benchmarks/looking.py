"""What looking inside costs: a training step of GPT as it is, checked, watched, and under `tn.debug.trace`.

    TENON_THREADS=1 python -m benchmarks.looking [--seconds 60] [--layers 6] [--width 384] [--batch 4]

All ways take turns on one function, which is captured and compiled once.
"""

import argparse
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import tenon as tn
from benchmarks.models import gpt
from benchmarks.timing import compare, use_one_core
from tenon import nn, optim
from tenon.observe import subscribe

CALLS = 4           # in a block


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    for name, default in (("layers", 6), ("width", 384), ("batch", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args(argv)
    use_one_core()
    step, x, y = training_step(arguments.layers, arguments.width, arguments.batch)
    for _ in range(3):
        step(x, y)
    captured: list[str] = []
    stop = subscribe(lambda event: captured.append(event.name) if event.name in ("capture", "lower") else None)
    times = compare({name: looking(step, x, y, block) for name, block in blocks(step).items()}, arguments.seconds)
    stop()
    for name, seconds in times.items():
        print(f"{name:40} {seconds * 1e3 / CALLS:9.1f} ms  {seconds / times['as it is']:.3f}")
    print(f"captured or lowered anew meanwhile: {len(captured)}")


def training_step(layers: int, width: int, batch: int) -> Any:
    """(step, ids, targets) of a GPT that Adam trains."""
    tn.manual_seed(0)
    net = gpt(nn, layers, width)
    optimizer = optim.Adam(net.parameters(), lr=1e-4)

    @tn.jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x).reshape(-1, 256), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss
    return step, tn.randint(0, 256, (batch, 256)), tn.randint(0, 256, (batch, 256))


Block = Callable[[], AbstractContextManager[Any]]


def blocks(step: Any) -> dict[str, Block]:
    """What is put around a call."""
    trace = Path(tempfile.mkdtemp()) / "trace.json"
    return {"as it is": nullcontext, "check": lambda: tn.debug.check(step),
            "check, with a range": lambda: tn.debug.check(step, range=(-1e6, 1e6)),
            "check, overflow": lambda: tn.debug.check(step, nan=False, inf=False, overflow=True),
            "watch, six activations": lambda: tn.debug.watch(step, "net.blocks.?"),
            "watch, summaries of all": lambda: tn.debug.watch(step, summaries=True),
            "trace": lambda: tn.debug.trace(trace)}


def looking(step: Any, x: Any, y: Any, block: Block) -> Callable[[], object]:
    """Calls that are looked into as `block` says; what is made for the first, the others have."""
    def run() -> None:
        with block():
            for _ in range(CALLS):
                step(x, y)
    return run


if __name__ == "__main__":
    main()
