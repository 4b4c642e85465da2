"""What became of PyTorch's graphs: how many of their operators Tenon runs, and which ones PyTorch does, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from threading import Lock


@dataclass
class Report:
    """Counts of operators, as they stand in graphs: an operator in one is counted once, however often it is run."""

    graphs: int = 0                                             # graphs that were compiled
    programs: int = 0                                           # of Tenon, that they became
    operators: int = 0                                          # that Tenon runs
    drawn: int = 0                                              # random numbers, which PyTorch's generator draws
    in_torch: Counter[str] = field(default_factory=Counter)     # operators that PyTorch runs, by name
    reasons: dict[str, str] = field(default_factory=dict)       # the last reason, by name

    def __str__(self) -> str:
        share = self.operators / max(1, self.operators + self.in_torch.total())
        rows = [f"{self.graphs} graphs, {self.programs} programs: {self.operators} operators in Tenon ({share:.1%}), "
                f"{self.in_torch.total()} in PyTorch, {self.drawn} random numbers drawn by PyTorch"]
        rows += [f"  {name}: {count}  ({self.reasons[name]})" for name, count in self.in_torch.most_common()]
        return "\n".join(rows)


_lock = Lock()
_total = Report()


def report() -> Report:
    """What was compiled since the process began, or since `reset_report`."""
    with _lock:
        return Report(_total.graphs, _total.programs, _total.operators, _total.drawn, _total.in_torch.copy(),
                      dict(_total.reasons))


def reset_report() -> None:
    """Count from 0 again."""
    global _total
    with _lock:
        _total = Report()


def note(graph: Report) -> None:
    """Add what became of one graph."""
    with _lock:
        _total.graphs += graph.graphs
        _total.programs += graph.programs
        _total.operators += graph.operators
        _total.drawn += graph.drawn
        _total.in_torch += graph.in_torch
        _total.reasons |= graph.reasons
