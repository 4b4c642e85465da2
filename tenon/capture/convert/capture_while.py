"""A loop whose condition is a tensor: its body is recorded until it fits all iterations, and becomes a `while_loop`.

The condition is computed before the loop and at the end of each iteration, and carried.  A first iteration that is not
like the others (None before it and a tensor after, unbound and bound, another type) is recorded on its own, under a
condition, before the loop.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenon.capture.code_monitor import UnsafeCall, unwatched
from tenon.capture.code_origin import STANDS_FOR
from tenon.capture.convert.callees import own_truth
from tenon.capture.convert.capture_branches import exception_of_the_program
from tenon.capture.convert.list_growth import fitted, grown
from tenon.capture.convert.optional_elements import is_undecided
from tenon.capture.convert.phi_merge import Arm, Join, free_values, needed
from tenon.capture.convert.reachable import reachable
from tenon.capture.convert.state_snapshot import Key, StateMark, elements
from tenon.capture.convert.statements import PRIVATE
from tenon.capture.convert.union_value import UNBOUND, UnionValue
from tenon.capture.convert.widen import Unstable, leaves_of, renewed, replaced, widened
from tenon.capture.runtime_numbers import RuntimeNumber, as_tensor, one_kind, strong, truth
from tenon.capture.subgraph import InnerBuilder, closed
from tenon.capture.symbolic_numbers import SymNumber
from tenon.eager.grad_mode import recorded_like
from tenon.eager.tape import TapeNode, linked
from tenon.errors import user_location
from tenon.graph.ir import Graph, Value
from tenon.ops.branches import as_tuple
from tenon.ops.comparison import logical_and, logical_not
from tenon.ops.loops import while_loop
from tenon.tensor import Tensor

if TYPE_CHECKING:
    from tenon.capture.convert.converting_capture import ConvertingCapture

KEPT = -1               # in the place of a parameter: the tensor itself
MAX_PEELED = 3          # iterations that are not like the others
MAX_TRIES = 12          # to find what changes
MAX_UNROLLED = 256      # iterations whose conditions are Python values, within one that is under a condition


class Earlier:
    """Stands on the tape for the iterations before the one that is recorded."""

    name = "an earlier iteration"
    is_edge = True          # where somebody may want the gradient of a gradient

    @staticmethod
    def vjp(*_: Any, **__: Any) -> Any:
        raise UnsafeCall("backward() within a loop reaches an iteration before", where=user_location(),
                         hint="x.detach() at the end of an iteration stops the gradient there")


EARLIER: Any = Earlier()


class WhileCapture:
    """A `while` loop: Python's own until its condition is a tensor."""

    def __init__(self, capture: ConvertingCapture | None, names: Sequence[str], live: Sequence[str], broken: str | None,
                 yields: bool):
        self.capture, self.names, self.live, self.broken, self.yields = capture, names, live, broken, yields
        self.data, self.go, self.ended = False, True, False
        self.caught: tuple[type[BaseException], ...] = ()
        self.error: BaseException | None = None
        self.flag: Any = True
        self.tracing = False            # whether a body is being recorded for all iterations
        self.peels: list[Peel] = []
        self.unrolled = 0
        self.where = user_location()

    # ------------------------------------------------------------ what the rewritten code calls

    def test(self, value: Any) -> None:
        """The condition was computed."""
        if self.capture is not None:        # asked once: a user's `__bool__` may do more
            several = type(value) is UnionValue or (self.capture.undecided and is_undecided(value))
            value = self.capture.truth(value) if several else own_truth(value)
        if type(value) is SymNumber and value.numbers.counts_iterations(sys._getframe(1), value):
            value = value.numbers.in_graph(value)
        self.flag = value
        if not self.data:
            if self.capture is not None and self.capture.is_data(value):
                self.data, self.caught = True, (BaseException,)
            else:
                self.go = bool(value)

    def raised(self) -> None:
        """An iteration ended with an exception."""
        self.error, self.ended = exception_of_the_program(), True

    def leave(self, scope: Mapping[str, Any]) -> tuple[Any, ...]:
        """The beginning of the loop, or the end of an iteration: the variables for what comes next."""
        if self.yields:
            raise UnsafeCall("a loop whose condition is a tensor yields", where=self.where)
        self.caught = ()        # an error from here on is none of the program's
        step = self.end_of_iteration if self.tracing else self.end_of_peeled if self.peels else self.start
        with unwatched():
            variables = step(scope)
        self.caught = (BaseException,)
        return variables

    # ------------------------------------------------------------ the iteration that stands for all

    def start(self, scope: Mapping[str, Any]) -> tuple[Any, ...]:
        """Begin with this condition and these variables."""
        assert self.capture is not None
        capture = self.capture
        self.condition = self.running(self.flag)
        self.scope = dict(scope)
        self.mark = StateMark(capture, scope, self.names)
        self.plan: dict[Key, Any] = {self.mark.place("variable", None, n, x): x
                                     for n, x in self.mark.variables.items()}
        self.plan |= self.hidden()
        self.tries = 0
        self.carries: set[int] = set()      # which leaves carry a gradient from an iteration to the next
        self.apart: set[int] = set()        # leaves that are one tensor before the loop, and several in it
        self.kept: dict[int, Tensor] = {}   # tensors changed in place: their elements are handed on, not they
        return self.record()

    def hidden(self) -> dict[Key, Any]:
        """What the loop hands on besides variables."""
        return {}

    def running(self, flag: Any) -> Any:
        """The condition under which the loop goes on."""
        assert self.capture is not None
        flag, failed = self.capture.truth(flag), self.capture.failed
        if failed is False or flag is False:
            return flag
        going = logical_not(strong(failed))
        return RuntimeNumber(logical_and(strong(flag), going) if isinstance(flag, Tensor) else going)

    def record(self) -> tuple[Any, ...]:
        """Record an iteration on parameters of its own."""
        assert self.capture is not None
        capture = self.capture
        self.tries += 1
        if self.tries > MAX_TRIES:
            raise UnsafeCall("a loop changes what it works on in every iteration anew", where=self.where)
        self.outer, self.path = capture.builder, capture.path
        capture.builder = InnerBuilder("body", self.outer)
        self.params: list[tuple[Tensor, Value, Tensor]] = []    # the entry, and what stands for it
        self.places: list[int] = []         # for every leaf, its parameter
        memo: dict[int, Any] = {}
        given = {key: replaced(entry, self.parameter, memo) for key, entry in self.plan.items()}
        self.given = given
        variables = self.mark.give(given)
        broken = variables.get(self.broken or "")
        if isinstance(broken, Tensor):
            capture.path = capture.assuming(broken, False)
        self.tracing, self.error, self.ended, self.go = True, None, False, True
        return tuple(variables[n] for n in self.names)

    def parameter(self, entry: Tensor) -> Tensor:
        """What stands for a tensor that iterations hand on."""
        leaf = len(self.places)
        if id(entry) in self.kept:
            self.places.append(KEPT)
            return entry
        if type(entry) is not RuntimeNumber and leaf not in self.apart:
            for k, (other, _, tensor) in enumerate(self.params):
                if other is entry:
                    self.places.append(k)
                    return tensor
        value = Value(entry.type, name=f"c{len(self.params)}")
        assert self.capture is not None
        self.capture.devices.enter_round(value, entry.payload)
        if type(entry) is RuntimeNumber:
            tensor = RuntimeNumber(Tensor(value), one_kind(entry).weak)
        elif leaf in self.carries or entry.requires_grad:
            self.capture.flows.add(value)
            tensor = linked(value, TapeNode(EARLIER, (), {}, (value,)), 0)
        else:
            tensor = Tensor(value)
        self.places.append(len(self.params))
        self.params.append((entry, value, tensor))
        return tensor

    def end_of_iteration(self, scope: Mapping[str, Any]) -> tuple[Any, ...]:
        assert self.capture is not None
        capture, mark = self.capture, self.mark
        moved = self.advance(scope)
        if self.error is not None:
            mark.restore()
            scope = {**scope, **mark.give(self.given)}
            capture.fail(self.error)
            self.flag = False
        condition = self.running(self.flag)
        exits = {**self.given, **mark.changes(scope), **moved}
        exits = {key: fitted(capture, self.given[key], x) if key in self.given else x for key, x in exits.items()}
        body, capture.builder, capture.path = capture.builder, self.outer, self.path
        mark.restore()
        self.tracing = False
        try:
            plan = {key: self.widened(key, exit) for key, exit in exits.items()}
            if plan.keys() != self.plan.keys() or any(plan[key] is not self.plan[key] for key in plan):
                self.plan, self.carries, self.apart = plan, set(), set()
                return self.record()
            if self.keep_changed():
                return self.record()
            leaves = self.leaves(exits)
            carries, apart = self.carried_gradients(leaves), self.parted(leaves)
        except Unstable as unstable:
            return self.peel(unstable)
        if not (carries <= self.carries and apart <= self.apart):
            self.carries |= carries
            self.apart |= apart
            return self.record()
        return self.finish(self.emit(body, condition, leaves))

    def advance(self, scope: Mapping[str, Any]) -> dict[Key, Any]:
        """What a loop changes by itself."""
        return {}

    def widened(self, key: Key, exit: Any) -> Any:
        """What a place holds in every iteration."""
        assert self.capture is not None
        entry = self.plan[key] if key in self.plan else self.mark.places[key].before
        if entry is UNBOUND and key[0] == "variable" and key[2] not in self.live:
            return entry        # it is bound anew in every iteration before it is read
        if any(map(self.is_held_elsewhere, renewed(self.mark.places[key].before, exit))):
            raise Unstable("a container that is held elsewhere too, and another one after it")
        known = self.capture.world.known
        return widened(entry, exit, lambda x: id(x) not in known, self.grow)

    def is_held_elsewhere(self, container: Any) -> bool:
        """Whether variables that the loop does not hand on lead to a container, here or in a function above."""
        frame: types.FrameType | None = sys._getframe()
        values: list[Any] = []
        own: Sequence[str] = self.names
        while frame is not None:
            if frame.f_code in STANDS_FOR:
                values += [x for n, x in frame.f_locals.items() if n not in own and not n.startswith(PRIVATE)]
                own = ()
            frame = frame.f_back
        return any(x is container for x in reachable(values, ()).holders)

    def grow(self, before: Any, after: Any) -> Any:
        """A list that can be as it is before an iteration and after it."""
        assert self.capture is not None
        self.capture.irregular = self.capture.undecided = True
        return grown(self.capture, list(before), list(after))

    def leaves(self, exits: Mapping[Key, Any]) -> list[tuple[Tensor, Any]]:
        """The tensors that iterations hand on, each with what it is at the end of this one."""
        found: list[tuple[Tensor, Any]] = []
        memo: dict[int, Any] = {}
        for key, entry in self.plan.items():
            leaves_of(entry, exits[key], found, memo)
        return found

    def keep_changed(self) -> bool:
        """Whether the iteration changed a tensor in place that is not handed on as its elements yet.

        Others may know that tensor, so it stays the one it is.
        """
        changed = [entry for entry, param, tensor in self.params if tensor.own.payload is not param]
        for entry in changed:
            view = elements(entry, entry.state)
            self.kept[id(entry)] = entry
            self.plan[self.mark.place("elements", entry, None, view)] = view
        return bool(changed)

    @staticmethod
    def carried_gradients(leaves: Sequence[tuple[Tensor, Any]]) -> set[int]:
        """The leaves that do not carry a gradient into the loop, and do so after an iteration."""
        return {k for k, (entry, exit) in enumerate(leaves)
                if isinstance(exit, Tensor) and exit.requires_grad and not entry.requires_grad}

    def parted(self, leaves: Sequence[tuple[Tensor, Any]]) -> set[int]:
        """The leaves that were one tensor with another, and are no longer."""
        first: dict[int, Any] = {}
        found = set()
        for k, (entry, exit) in enumerate(leaves):
            param = self.places[k]
            if param == KEPT:
                if exit is not entry:
                    raise Unstable("a tensor that is changed in place before an iteration, and another one after it")
                continue
            if first.setdefault(param, exit) is not exit:
                found.add(k)
        return found

    # ------------------------------------------------------------ the node

    def emit(self, body: Any, condition: Any, leaves: Sequence[tuple[Tensor, Any]]) -> dict[Key, Any]:
        """Record the loop; what the places hold after it."""
        assert self.capture is not None
        capture = self.capture
        exit_of = {self.places[k]: exit for k, (_, exit) in enumerate(leaves)}
        carried, fixed, results = [], {}, []
        inner = Arm(capture, body, {})
        for k, (entry, param, _) in enumerate(self.params):
            exit = exit_of[k]
            if isinstance(exit, Tensor) and exit.payload is param:
                fixed[param] = entry
            else:
                carried.append(k)
                results.append(inner.result(exit, entry))
        flag = Value(truth(as_tensor(True)).type, name="going")
        results.insert(0, inner.result(condition, None))
        graph = Graph("body", (flag, *(self.params[k][1] for k in carried)), tuple(needed(body.nodes, results)),
                      tuple(results))
        free = free_values([graph])
        constants = [strong(fixed[v]) if v in fixed else capture.carrier(v) for v in free]
        body_graph, test = closed_first(graph, free), closed_first(Graph("condition", graph.params, (), (flag,)), free)
        inputs = [*constants, as_tensor(self.condition), *(strong(self.params[k][0]) for k in carried)]
        with recorded_like([*inputs, *exit_of.values()]):
            made = as_tuple(while_loop(*inputs, constants=len(constants), condition=test, body=body_graph))
        after = [entry for entry, _, _ in self.params]
        for k, out in zip(carried, made[1:], strict=True):
            entry = after[k]
            after[k] = self.output(k, exit_of[k], out)
            if type(entry) is not RuntimeNumber and exit_of[k] is not self.params[k][2]:      # bound to another tensor
                capture.may_be(after[k], entry, exit_of[k])
        given = iter([None if k == KEPT else after[k] for k in self.places])
        memo: dict[int, Any] = {}

        def fill(entry: Tensor) -> Tensor:
            new = next(given)
            return entry if new is None else new
        return {key: replaced(entry, fill, memo) for key, entry in self.plan.items()}

    def output(self, number: int, exit: Any, out: Tensor) -> Tensor:
        """What stands for a parameter after the loop, as the kind of thing that the place holds."""
        entry = self.params[number][0]
        if type(entry) is RuntimeNumber:
            return RuntimeNumber(out, entry.weak)
        return out if entry.requires_grad or exit.requires_grad else out.detach()

    # ------------------------------------------------------------ iterations on their own

    def peel(self, why: Unstable) -> tuple[Any, ...]:
        """Record the first iteration as it is."""
        assert self.capture is not None
        if len(self.peels) >= MAX_PEELED:
            return self.refuse(why)
        self.peels.append(Peel(self, self.mark, self.condition))
        self.error, self.ended, self.go = None, False, True
        return self.begin_peeled()

    def begin_peeled(self) -> tuple[Any, ...]:
        return tuple(self.mark.variables[n] for n in self.names)

    def refuse(self, why: Unstable) -> tuple[Any, ...]:
        raise UnsafeCall(f"a loop on a tensor holds {why}", where=self.where,
                         hint="give what it changes one type and shape before the loop")

    def end_of_peeled(self, scope: Mapping[str, Any]) -> tuple[Any, ...]:
        assert self.capture is not None
        if self.error is not None:
            self.capture.fail(self.error)
            self.flag = False
        if self.capture.is_data(self.flag):
            return self.start(scope)
        if self.flag:
            self.unrolled += 1
            if self.unrolled > MAX_UNROLLED:
                raise UnsafeCall("a loop under a condition on a tensor does not end", where=self.where)
            return tuple(scope.get(n, UNBOUND) for n in self.names)
        return self.unwind({n: scope.get(n, UNBOUND) for n in self.names})

    def finish(self, values: Mapping[Key, Any]) -> tuple[Any, ...]:
        """The loop is recorded: give the places what they hold after it."""
        self.mark.close()
        return self.unwind(self.mark.give(values))

    def unwind(self, variables: Mapping[str, Any]) -> tuple[Any, ...]:
        """Close the iterations recorded on their own, the last first."""
        while self.peels:
            variables = self.peels.pop().close(variables)
        self.go = False
        return tuple(variables[n] for n in self.names)


class Peel:
    """One iteration under the condition that there is one, with all that comes after it."""

    def __init__(self, loop: WhileCapture, mark: StateMark, condition: Any):
        assert loop.capture is not None
        self.capture, self.mark, self.condition = loop.capture, mark, condition
        self.outer, self.path = self.capture.builder, self.capture.path
        self.certain = condition is True
        if not self.certain:
            self.capture.builder = InnerBuilder("once", self.outer)
            self.capture.path = self.capture.assuming(condition, True)

    def close(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        if self.certain:
            self.mark.close()
            self.capture.touched += self.mark.touched
            return dict(variables)
        values = self.mark.changes(variables)
        assert isinstance(self.capture.builder, InnerBuilder)
        then = Arm(self.capture, self.capture.builder, values)
        self.capture.builder, self.capture.path = self.outer, self.path
        self.mark.restore()
        self.mark.close()
        other = Arm(self.capture, InnerBuilder("none", self.outer), {})
        before = {key: place.before for key, place in self.mark.places.items()}
        join = Join(self.capture, strong(self.condition), then, other, self.mark.is_new)
        return self.mark.give(join.values(before))


def closed_first(graph: Graph, free: Sequence[Value]) -> Graph:
    """The graph with values of another one made into parameters, before its own."""
    return closed(Graph(graph.name, (*free, *graph.params), graph.nodes, graph.results), [])


