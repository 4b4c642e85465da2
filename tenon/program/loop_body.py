"""A loop as it was written, before it is steps: what a backend may make one kernel of."""

from __future__ import annotations

from tenon.locks import cached_property
from tenon.program.steps import KernelStep, Step, Storage, leaves, resolve
from tenon.records import dataclass


@dataclass(frozen=True)
class LoopBody:
    """A loop as it was written: what it carries, and what an iteration does.  All sizes are known."""

    initial: tuple[Storage, ...]
    carried: tuple[Storage, ...]
    condition: tuple[Step, ...]
    proceed: Storage | None
    body: tuple[Step, ...]
    following: tuple[Storage, ...]                          # where an iteration leaves what the next one is given
    length: int | None = None
    reverse: bool = False
    slices: tuple[tuple[Storage, Storage], ...] = ()        # (what an iteration reads, the array that it is a row of)
    stacked: tuple[tuple[Storage, Storage], ...] = ()     # (what one makes, the array of which it becomes a row)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        return self.condition + self.body

    @cached_property
    def own(self) -> dict[Storage, None]:
        """The memory that the function has for itself."""
        made = (resolve(x) for step in leaves(self.steps) for x in (*step.outputs, *temporaries_of(step)))
        return dict.fromkeys([*self.carried, *made])

    @cached_property
    def inputs(self) -> tuple[Storage, ...]:
        """What it reads of the program's memory."""
        proceed = () if self.proceed is None else (self.proceed,)
        rows = {row for row, _ in self.slices}
        read = [x for step in self.steps for x in step.inputs]
        listed = (*self.initial, *(array for _, array in self.slices), *read, *proceed, *self.following,
                  *(place for place, _ in self.stacked))
        return tuple(x for x in dict.fromkeys(map(resolve, listed))
                     if x not in self.own and x not in rows and not is_written_out(x))


def is_written_out(x: Storage) -> bool:
    """Whether the code holds the elements of a constant."""
    return x.data is not None and x.data.nbytes <= 1024


def temporaries_of(step: Step) -> tuple[Storage, ...]:
    return step.temporaries if isinstance(step, KernelStep) else ()
