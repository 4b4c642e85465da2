"""An `if` on a tensor: both arms are recorded, one after the other from the same state, and merged."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenon.capture.code_monitor import UnsafeCall, unwatched
from tenon.capture.convert.phi_merge import Arm, Join
from tenon.capture.convert.state_snapshot import StateMark
from tenon.capture.convert.union_value import UNBOUND
from tenon.capture.raised_exceptions import is_of_the_program
from tenon.capture.runtime_numbers import strong
from tenon.capture.subgraph import InnerBuilder
from tenon.dims.undecided_sizes import UndecidedSize
from tenon.errors import PACKAGE, CaptureError, user_location
from tenon.ops.comparison import logical_not
from tenon.tensor import Tensor

if TYPE_CHECKING:
    from tenon.capture.convert.converting_capture import ConvertingCapture

# What only a mistake in these files raises there: it is an error of Tenon's, not the program's.
OWN_FILES = frozenset(f"{PACKAGE}capture/convert/{name}.py" for name in (
    "capture_branches", "capture_while", "converting_capture", "object_trees", "phi_merge", "reachable",
    "state_snapshot", "tensor_list", "widen"))
MISTAKES = (AttributeError, KeyError, TypeError, AssertionError, IndexError, NameError)
DEEPEST = 24            # conditions inside conditions, as recursion makes them


class Abandoned(Exception):
    """Ends the recording of an arm that is too deep: a call that comes there runs eagerly."""


def exception_of_the_program() -> BaseException | None:
    """The exception being handled; raises it again where it is none of the program's."""
    error = sys.exception()
    if isinstance(error, (UndecidedSize, CaptureError)) or not is_of_the_program(error):
        raise error     # type: ignore[misc]
    place = error.__traceback__ if error is not None else None
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    own = place is not None and place.tb_frame.f_code.co_filename in OWN_FILES
    if own and isinstance(error, MISTAKES) and not isinstance(error, UnboundLocalError):
        raise UnsafeCall(f"capture came to {type(error).__name__}: {error}")
    return error


def decide(capture: ConvertingCapture, condition: Any, then: Callable[[], Any], other: Callable[[], Any]) -> Any:
    """Call one of two functions, as the graph decides."""
    truth = capture.truth(condition)
    if isinstance(truth, bool):
        return then() if truth else other()
    scope = {f"{k}{n}": cell.cell_contents for k, f in enumerate((then, other))
             for n, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True) if _is_full(cell)}
    fork, value = BranchCapture(capture, strong(truth), scope, ("value",)), UNBOUND
    for arm in fork:
        try:
            value = then() if arm.taken else other()
        except BaseException:
            arm.raised()
        (value,) = arm.leave({"value": value})
    return value


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


class Plain:
    """An `if` on a Python value, of which one arm runs as ever."""

    data, caught = False, ()

    def __init__(self, taken: bool):
        self.taken = taken


class BranchCapture:
    """An `if` on a bool of the graph."""

    data, caught = True, (BaseException,)

    def __init__(self, capture: ConvertingCapture, condition: Tensor, scope: Mapping[str, Any], names: Sequence[str]):
        self.capture, self.condition, self.names = capture, condition, names
        self.where = user_location()
        self.outer, self.path = capture.builder, capture.path
        if capture.depth >= DEEPEST:
            raise Abandoned(f"conditions on tensors are nested more than {DEEPEST} deep")
        with unwatched():
            self.mark = StateMark(capture, scope, names)
        self.arms: list[Arm] = []
        self.errors: list[BaseException | None] = []

    def __iter__(self) -> Iterator[BranchCapture]:
        capture = self.capture
        capture.depth += 1
        for self.taken in (True, False):
            capture.builder = InnerBuilder("then" if self.taken else "otherwise", self.outer)
            capture.path = capture.assuming(self.condition, self.taken)
            self.error: BaseException | None = None
            yield self
        capture.depth -= 1

    def raised(self) -> None:
        """The arm has ended with an exception."""
        self.error = exception_of_the_program()

    def leave(self, scope: Mapping[str, Any]) -> tuple[Any, ...]:
        """The end of an arm: the variables for the next one, or as they are after both."""
        with unwatched():
            return self._leave(scope)

    def _leave(self, scope: Mapping[str, Any]) -> tuple[Any, ...]:
        capture, mark = self.capture, self.mark
        values = mark.changes(scope) if self.error is None else {}
        assert isinstance(capture.builder, InnerBuilder)
        self.arms.append(Arm(capture, capture.builder, values))
        self.errors.append(self.error)
        capture.builder, capture.path = self.outer, self.path
        mark.restore()
        if len(self.arms) == 1:
            variables = mark.variables
        else:
            mark.close()
            variables = self.both() if self.errors == [None, None] else self.one()
        return tuple(variables[n] for n in self.names)

    def both(self) -> dict[str, Any]:
        """Neither arm raised: their outcomes as one."""
        before = {key: place.before for key, place in self.mark.places.items()}
        join = Join(self.capture, self.condition, self.arms[0], self.arms[1], self.mark.is_new)
        return self.mark.give(join.values(before))

    def one(self) -> dict[str, Any]:
        """An arm raised: where it is taken the call runs eagerly, and here the other goes on."""
        first, second = self.errors
        if first is not None and second is not None:
            if type(first) is type(second) and first.args == second.args:
                raise second
            raise UnsafeCall(f"it raises {type(first).__name__} or {type(second).__name__}, as the data decide",
                             where=self.where)
        taken = first is not None
        self.capture.fail_if(self.condition if taken else logical_not(self.condition), first if taken else second)
        arm = self.arms[1 if taken else 0]
        self.capture.builder.nodes += arm.builder.nodes
        failed = self.capture.failed
        variables = self.mark.give({k: v for k, v in arm.values.items() if k[0] != "failed"})
        self.capture.failed = failed
        inner = next((v for k, v in arm.values.items() if k[0] == "failed"), None)
        if isinstance(inner, Tensor):
            self.capture.fails_where(inner)
        self.capture.path = self.capture.assuming(self.condition, not taken)
        return variables
