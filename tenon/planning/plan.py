"""What would run where, and what it would cost: the candidates of a search, as a table, and as a file.

    plan = tn.distributed.plan(model, cluster="a100", devices=1024)
    print(plan)                     # one row a candidate, the fastest first
    plan.sizes, plan.mesh           # of the first
    plan.save("plan.json"); Plan.load("plan.json")
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from tenon.debug.console import plain_table
from tenon.errors import ArgumentError
from tenon.pipelining.schedules import SCHEDULES
from tenon.planning.checked_table import CheckedTable
from tenon.planning.parallel_sizes import RECOMPUTED, ParallelSizes
from tenon.planning.training_step import StepEstimate
from tenon.records import dataclass
from tenon.sharding.mesh import Mesh
from tenon.sharding.sharding import Spec

FORMAT = "tenon plan 1"
SHOWN = 10
MAX_CANDIDATES = 10_000
LONGEST_FILE = 10_000_000       # bytes


@dataclass(frozen=True)
class Plan:
    """Candidates for one training step on one cluster, the fastest first; `levels` are the cluster's.

    >>> from tenon.planning.make_plan import plan
    >>> from tenon.planning.transformer_model import TransformerModel
    >>> found = plan(TransformerModel(layers=4, width=1024, heads=16, batch=64), cluster="a100", devices=4)
    >>> found.mesh.size, found.best.fits, found == Plan.from_json(found.to_json())
    (4, True, True)
    """

    what: str
    cluster: str
    levels: tuple[str, ...]
    candidates: tuple[StepEstimate, ...]

    @property
    def best(self) -> StepEstimate:
        """The fastest that fits."""
        return self.candidates[0]

    @property
    def sizes(self) -> ParallelSizes:
        """How the best one divides the step."""
        return self.best.sizes

    @property
    def mesh(self) -> Mesh:
        """The devices of the best one."""
        return self.sizes.mesh

    def applied(self, function: Any, options: dict[str, Any]) -> Any:
        """The function, jitted to run as the best one says: what `tn.jit(plan=)` does."""
        above = import_module("tenon.planning.planned_step")        # by name: it stands above
        return above.planned_step(function, self.best, options)

    def __str__(self) -> str:
        columns = ["stage x data x model", "schedule", "micro-batch", "recompute", "shard", "step", "memory",
                   *(f"by {name}" for name in self.levels), "bubble", "MFU"]
        rows = [_row(x) for x in self.candidates[:SHOWN]]
        title = f"{self.what} on {self.sizes.devices} devices of {self.cluster}"
        more = len(self.candidates) - SHOWN
        return plain_table(title, columns, rows) + (f"\nand {more} more" if more > 0 else "")

    # ------------------------------------------------------------ files

    def to_json(self) -> str:
        """The plan as text."""
        rows = [{**_fields(x), "sizes": _fields(x.sizes)} for x in self.candidates]
        return json.dumps({"format": FORMAT, "what": self.what, "cluster": self.cluster, "levels": self.levels,
                           "candidates": rows}, indent=1)

    @staticmethod
    def from_json(text: str, where: str = "the plan") -> Plan:
        """The plan that such a text says.  Raises ArgumentError that names the key where it says none."""
        try:
            said = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"{where} is no JSON: {error}") from None
        top = CheckedTable(said, where)
        if (found := top.value("format")) != FORMAT:
            raise top.wrong("format", found, repr(FORMAT))
        levels = top.value("levels")
        if not isinstance(levels, list) or not all(isinstance(x, str) for x in levels) or not levels:
            raise top.wrong("levels", levels, "a list of names")
        rows = top.tables("candidates")
        if len(rows) > MAX_CANDIDATES:
            raise ArgumentError(f"{where}: {len(rows)} candidates, and at most {MAX_CANDIDATES} are read")
        plan = Plan(top.text("what"), top.text("cluster"), tuple(levels), tuple(_candidate(x, levels) for x in rows))
        top.done()
        return plan

    def save(self, path: str | Path) -> None:
        """Write the plan to a JSON file."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read what `save` wrote.  Raises ArgumentError where the file is no plan."""
        try:
            with open(path, "rb") as file:
                text = file.read(LONGEST_FILE + 1)
            if len(text) > LONGEST_FILE:
                raise ArgumentError(f"{path} is longer than any plan")
            return Plan.from_json(text.decode("utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise ArgumentError(f"the plan {path} cannot be read: {error}") from None


def _row(x: StepEstimate) -> list[str]:
    s = x.sizes
    schedule = ("" if s.stage == 1 else s.schedule) + (f" of {s.chunks}" if s.chunks > 1 else "")
    return [f"{s.stage} x {s.data} x {s.model}", schedule, str(s.micro_batch), s.recompute, str(s.shard),
            duration(x.seconds), f"{x.memory / 1e9:.1f} of {x.room / 1e9:.1f} GB", *map(amount, x.sent),
            f"{x.bubble:.1%}", f"{x.mfu:.1%}"]


def duration(seconds: float) -> str:
    """
    >>> duration(12.3456), duration(0.0123)
    ('12.35 s', '12.3 ms')
    """
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def amount(size: float) -> str:
    """
    >>> amount(2.5e12), amount(0.0)
    ('2.5 TB', '0')
    """
    for power, unit in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= power:
            return f"{size / power:.3g} {unit}"
    return f"{size:.0f}"


def _fields(x: Any) -> Mapping[str, Any]:
    return {name: getattr(x, name) for name in type(x).__annotations__}


def _candidate(read: CheckedTable, levels: list[str]) -> StepEstimate:
    sent = read.value("sent")
    if not isinstance(sent, list) or len(sent) != len(levels):
        raise read.wrong("sent", sent, f"a list of {len(levels)} numbers")
    numbers = {name: read.number(name, low=0.0) for name in (
        "seconds", "pipeline", "replicas", "update", "bubble", "memory", "room", "mfu")}
    sent_checked = CheckedTable(dict(zip(levels, sent, strict=True)), f"{read.where}: sent")
    step = StepEstimate(sizes=_sizes(read.table("sizes")), **numbers,
                        sent=tuple(sent_checked.number(name, low=0.0) for name in levels), splits=_splits(read))
    read.done()
    return step


def _splits(read: CheckedTable) -> tuple[tuple[str, Spec], ...]:
    found = read.value("splits", [])
    try:
        splits = {name: tuple(spec) for name, spec in found}
        if not all(isinstance(name, str) and all(x in (None, "model") for x in spec) for name, spec in splits.items()):
            raise ValueError
    except (TypeError, ValueError):
        raise read.wrong("splits", found, 'a list of names with entries, each null or "model",') from None
    return tuple(splits.items())


def _sizes(read: CheckedTable) -> ParallelSizes:
    sizes = ParallelSizes(
        data=read.whole("data"), model=read.whole("model"), stage=read.whole("stage"),
        micro_batch=read.whole("micro_batch"), schedule=read.among("schedule", SCHEDULES), chunks=read.whole("chunks"),
        sequence=read.truth("sequence"),
        recompute=read.among("recompute", RECOMPUTED), shard=read.among("shard", (0, 1, 2, 3)),
        overlap=read.truth("overlap"))
    read.done()
    return sizes
