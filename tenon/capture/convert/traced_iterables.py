"""Iterables whose items the graph computes: the rows of a tensor, ranges up to a tensor, and what combines them."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from tenon.capture.code_monitor import UnsafeCall, unwatched
from tenon.capture.convert.capture_while import Peel, WhileCapture
from tenon.capture.convert.list_growth import ListElements, elements, grown, together
from tenon.capture.convert.optional_elements import SEQUENCES, is_perhaps, is_undecided, refused
from tenon.capture.convert.state_snapshot import Key, StateMark
from tenon.capture.convert.tensor_list import TensorList, at, known_count
from tenon.capture.convert.union_value import UNBOUND, UnionValue
from tenon.capture.convert.widen import Unstable
from tenon.capture.counted_loops import CountedLoops, Place
from tenon.capture.runtime_numbers import RuntimeNumber, strong
from tenon.dims.compare_sizes import same_sizes
from tenon.dims.symbolic_dim import Dim, SymbolicDim
from tenon.errors import user_location
from tenon.graph.ir import Value
from tenon.ops.comparison import logical_and, logical_not
from tenon.ops.indexing import take
from tenon.ops.shape import as_dim, dimension
from tenon.tensor import Tensor
from tenon.tensor_state import recorder
from tenon.types import int64

if TYPE_CHECKING:
    from tenon.capture.convert.converting_capture import ConvertingCapture
    from tenon.capture.trace import Capture

FEW_ROWS = 8            # of a tensor, which are gone through as a list of them
MAX_ROWS = 1024         # that are gone through one by one where no loop can be made
MAX_LEFT = 100          # iterations that may be the last as the data decide, each of which stands within the one before


def place_now() -> Place:
    """The line of the user's code that is at work."""
    where = user_location()
    return ("", 0) if where is None else (where.file, where.line)


def may_be_counted() -> bool:
    """Whether the loop at this line may be one of the graph, where its number of turns is not known."""
    capture = recorder.get()
    loops = None if capture is None else cast("Capture", capture).loops
    return loops is not None and loops.tries(place_now())


class ItemSource:
    """Items by number."""

    length: Any
    counted: tuple[Place, ...] = ()     # where a number or a size that changes says how many there are
    turns: Dim | None = None            # how many there are, where sizes say it

    def at(self, index: Any) -> Any:
        """The item with this number, which the graph may compute."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(builtins.range(self.length))

    def __iter__(self) -> Iterator[Any]:
        if not isinstance(self.length, int):
            raise UnsafeCall("a loop runs as often as a tensor says, where that must be known", where=user_location())
        return (self.at(k) for k in builtins.range(self.length))


class TensorRows(ItemSource):
    """The rows of a tensor."""

    def __init__(self, of: Tensor):
        self.of, self.length = of, of.shape[0]
        self.counted, self.turns = () if isinstance(self.length, int) else (place_now(),), self.length

    def at(self, index: Any) -> Any:
        return take(self.of, strong(index), axis=0) if isinstance(index, Tensor) else self.of[index]


class Range(ItemSource):
    """`range` with bounds that the graph computes."""

    def __init__(self, start: Any, stop: Any, step: Any, given: Sequence[Any] | None = None):
        if isinstance(step, Tensor):
            raise UnsafeCall("the step of a range is a tensor", where=user_location())
        if step == 0:
            raise ValueError("range() arg 3 must not be zero")
        self.start, self.step, self.given = start, step, given
        self.counted = () if given is None else (place_now(),)
        span = stop - start if step > 0 else start - stop
        size = builtins.abs(step)
        self.length = span if size == 1 else (span + (size - 1)) // size

    def at(self, index: Any) -> Any:
        return self.start + index * self.step

    @property
    def turns(self) -> Dim | None:      # type: ignore[override]
        """How many numbers there are, where sizes say it: a symbol is made of a number that changes for that."""
        if self.given is None:
            return None
        start, stop = [0, *map(as_dim, self.given)][-2:] if len(self.given) == 1 else map(as_dim, self.given[:2])
        span, size = (stop - start if self.step > 0 else start - stop), builtins.abs(self.step)
        if not span >= 0:
            return None if isinstance(span, SymbolicDim) else 0
        turns: Dim = span if size == 1 else (span + (size - 1)) // size
        return turns

    def __getitem__(self, key: Any) -> Any:
        if self.given is not None:
            return builtins.range(*self.given)[key]
        raise UnsafeCall("an item is taken of a range that is as long as the data decide", where=user_location())

    def __len__(self) -> int:
        return super().__len__() if self.given is None else builtins.len(builtins.range(*self.given))

    def __iter__(self) -> Iterator[Any]:
        return super().__iter__() if self.given is None else builtins.iter(builtins.range(*self.given))

    def __eq__(self, other: object) -> bool:
        raise UnsafeCall("a range is compared that is as long as the data decide", where=user_location())

    __hash__ = None     # type: ignore[assignment]


class Listed(ItemSource):
    """A Python sequence beside others: its items are known for known numbers only."""

    def __init__(self, of: Sequence[Any]):
        self.of, self.length = of, builtins.len(of)

    def at(self, index: Any) -> Any:
        if isinstance(index, Tensor):
            raise Unstable("items of a Python sequence")
        return self.of[index]


class RemainingItems(ItemSource):
    """The elements that a loop has left in a list."""

    def __init__(self, several: TensorList):
        self.several, self.length = several, several.count

    def at(self, index: Any) -> Any:
        return at(self.several, index)


class Zip(ItemSource):
    """Several beside each other."""

    def __init__(self, sources: Sequence[ItemSource]):
        self.sources = sources
        self.counted = tuple([place for s in sources for place in s.counted])
        turns = [s.turns for s in sources]
        alike = same_sizes(*[(n,) for n in turns if n is not None]) and None not in turns
        self.length = sources[0].length if alike else builtins.min(s.length for s in sources)
        self.turns = turns[0] if alike else None

    def at(self, index: Any) -> Any:
        return tuple(s.at(index) for s in self.sources)


class Enumerate(ItemSource):
    """Numbers and items."""

    def __init__(self, source: ItemSource, start: int):
        self.source, self.start, self.length = source, start, source.length
        self.counted, self.turns = source.counted, source.turns

    def at(self, index: Any) -> Any:
        return self.start + index, self.source.at(index)


class Reversed(ItemSource):
    """From the last to the first."""

    def __init__(self, source: ItemSource):
        self.source, self.length = source, source.length
        self.counted, self.turns = source.counted, source.turns

    def at(self, index: Any) -> Any:
        return self.source.at(self.length - 1 - index)


def is_open_ended(x: Any) -> bool:
    """Whether this is items by number, and the graph says how many."""
    return isinstance(x, ItemSource) and not isinstance(x.length, int)


def gone_through(capture: ConvertingCapture, x: Any) -> Any:
    """What a loop goes through in the place of a container that holds as many elements as the data decide."""
    if type(x) is UnionValue and type(x := capture.settled(x)) is UnionValue:
        x = capture.each(x, list)
    if not is_undecided(x):
        return x
    if isinstance(x, dict) or not any(type(e) is TensorList for e in x):
        return elements(capture, x)
    several = together(capture, x)
    if several is None:
        raise refused("a loop goes through a list of several kinds of elements")
    return RemainingItems(several)


def source_of(x: Any) -> ItemSource | None:
    """The iterable as items by number, where the graph has a part in it and it is worth a loop."""
    if isinstance(x, ItemSource):
        return x
    if isinstance(x, Tensor) and isinstance(x.payload, Value) and x.ndim:
        if isinstance(x.shape[0], int):
            return TensorRows(x) if x.shape[0] > FEW_ROWS else None
        return TensorRows(x) if may_be_counted() else None
    return None


class Each(WhileCapture):
    """A `for` loop: Python's own, but over a `ItemSource`."""

    def __init__(self, capture: ConvertingCapture | None, iterable: Any, *args: Any):
        super().__init__(capture, *args)
        self.elements: ListElements | None = None       # which are there or not, and gone through one by one
        if capture is not None and capture.irregular:
            iterable = gone_through(capture, iterable)
            self.elements = iterable if isinstance(iterable, ListElements) else None
        self.source = None if capture is None else source_of(iterable)
        self.iterable = iterable
        self.data = self.source is not None or self.elements is not None
        self.caught = (BaseException,) if self.data else ()
        self.index: Any = 0
        self.unrolling = self.may_break = False
        self.passed = 0
        self.values: tuple[Any, ...] = ()

    def raised(self) -> None:
        super().raised()
        if self._counted is not None:       # which the number itself might not
            raise UnsafeCall(f"a turn of a loop raises {type(self.error).__name__}", where=self.where)

    def take(self) -> Any:
        """What Python's loop goes through."""
        iterable, self.iterable = self.iterable, None
        known = self.capture is None or not isinstance(iterable, (*SEQUENCES, dict))
        return self._items() if self.data else iterable if known else self._checked(iterable)

    def _checked(self, iterable: Any) -> Iterator[Any]:
        """The items of a container, which the loop must not prolong as the data decide."""
        for item in iterable:
            if is_perhaps(item) or type(item) is TensorList:
                raise UnsafeCall("a loop changes the list that it goes through", where=self.where)
            yield item

    def begin(self, scope: Mapping[str, Any]) -> None:
        """The loop begins with these variables."""
        if self.yields:
            raise UnsafeCall("a loop over a tensor yields", where=self.where)
        if self.elements is not None:
            self.scope, self.values = dict(scope), tuple(scope.get(n, UNBOUND) for n in self.names)
            return
        self.flag = self.more(scope)
        self.go = self.flag is not False
        if self.go and self._counted is not None:
            self._counted.opened(self.source.counted if self.source is not None else ())
        self.values = self.start(scope) if self.go else tuple(scope.get(n, UNBOUND) for n in self.names)

    @property
    def _counted(self) -> CountedLoops | None:
        """The loops that may have to be written out, where this is one."""
        assert self.capture is not None
        return self.capture.loops if self.source is not None and self.source.counted else None

    def unwind(self, variables: Mapping[str, Any]) -> tuple[Any, ...]:
        if self._counted is not None:
            self._counted.closed()
        return super().unwind(variables)

    def _items(self) -> Iterator[Any]:
        if self.elements is not None:
            yield from self._elements(self.elements)
            return
        assert self.source is not None
        while self.go:
            yield self.source.at(self.index)

    def _elements(self, elements: ListElements) -> Iterator[Any]:
        """Each element under the condition that it is there."""
        assert self.capture is not None
        content = list(elements.source) if elements.source is not None else []
        for there, value in elements.slots:
            if elements.changed(content):
                raise UnsafeCall("a loop changes the list that it goes through", where=self.where)
            if self.scope.get(self.broken or "", False) is True:
                return
            there = self.capture.decided(there)
            if there is False:
                continue
            self.caught, self.error = (() if there is True else (BaseException,)), None
            if there is not True:
                with unwatched():
                    self.peels.append(Peel(self, StateMark(self.capture, self.scope, self.names), there))
            yield value

    def leave(self, scope: Mapping[str, Any]) -> tuple[Any, ...]:
        if self.elements is not None:
            self.scope = dict(scope)
            variables: Mapping[str, Any] = {n: scope.get(n, UNBOUND) for n in self.names}
            if self.peels:
                assert self.capture is not None
                if self.error is not None:
                    self.capture.fail(self.error)
                with unwatched():
                    variables = self.peels.pop().close(variables)
                self.scope.update(variables)
            self.caught, self.values = (), tuple(variables[n] for n in self.names)
            return self.values
        if self.unrolling:
            self.index += 1
            self.go = self.more(scope) is not False
            self.values = tuple(scope.get(n, UNBOUND) for n in self.names)
            if not self.go:
                self.unwind(dict(zip(self.names, self.values, strict=True)))
            return self.values
        if not self.tracing:
            self.index += 1
            self.flag = self.more(scope)
        self.values = super().leave(scope)
        self.caught = () if self.unrolling else self.caught
        return self.values

    def more(self, scope: Mapping[str, Any]) -> Any:
        """Whether there is another item, and the loop was not left."""
        assert self.source is not None and self.capture is not None
        broken = scope.get(self.broken or "", False)
        self.may_break = self.may_break or isinstance(broken, Tensor)
        flag: Any = self.index < self.source.length
        if broken is True or flag is False:
            return False
        if isinstance(broken, Tensor) and not self.unrolling:
            going = logical_not(strong(broken))
            return RuntimeNumber(logical_and(strong(flag), going) if isinstance(flag, Tensor) else going)
        return RuntimeNumber(flag) if isinstance(flag, Tensor) else bool(flag)

    def hidden(self) -> dict[Key, Any]:
        return {self.mark.place("index", self, None, self.index): self.index}

    def advance(self, scope: Mapping[str, Any]) -> dict[Key, Any]:
        self.index = self.index + 1
        self.flag = self.more(scope)
        return {("index", id(self), None): self.index}

    def begin_peeled(self) -> tuple[Any, ...]:
        self.index = self.mark.places["index", id(self), None].before
        return super().begin_peeled()

    def refuse(self, why: Unstable) -> tuple[Any, ...]:
        """Where no loop can be made: one by one, if it is known how many there are."""
        assert self.source is not None
        if not isinstance(self.source.length, int) or self.source.length > MAX_ROWS:
            return super().refuse(why)
        self.mark.close()
        self.unrolling, self.go = True, True
        self.index = self.mark.places["index", id(self), None].before
        return tuple(self.mark.variables[n] for n in self.names)

    def grow(self, before: Any, after: Any) -> Any:
        """A list that becomes longer in every iteration is as long as there are iterations, where that is known."""
        assert self.source is not None and self.capture is not None
        if isinstance(self.source.length, int) and not is_undecided(after):
            return None
        if self._counted is None:
            return super().grow(before, after)
        if (turns := self.source.turns) is None:
            return None
        self.capture.irregular = self.capture.undecided = True
        return grown(self.capture, list(before), list(after), turns)

    def output(self, number: int, exit: Any, out: Tensor) -> Tensor:
        """A number that grows by as much in every iteration is known where it is known how many there are."""
        entry, param, _ = self.params[number]
        lists = self.capture is not None and self.capture.irregular and self._counted is not None
        turns = self.source.turns if self.source is not None and lists and not self.may_break else None
        if turns is not None and type(entry) is RuntimeNumber:
            first, by = known_count(entry.payload), known_count(exit.payload, param)
            if by is not None:
                more: Any = dimension(size=by * turns if first is None else first + by * turns, dtype=int64)
                return RuntimeNumber(more if first is not None else strong(entry) + more)
        return super().output(number, exit, out)

    def stop(self, broken: Any) -> bool:
        """Whether the loop was left for certain."""
        if isinstance(broken, Tensor) and not self.data:
            self.passed += 1
            if self.passed > MAX_LEFT:
                raise UnsafeCall("a loop that a condition on a tensor leaves has no other end", where=self.where)
        return broken is True and not self.data

