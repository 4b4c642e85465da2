"""What rewritten code calls: it stands for one `_tenon` in all of it, and asks the capture at hand, if there is one."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import local
from typing import TYPE_CHECKING, Any, cast

from tenon.capture.code_monitor import UnsafeCall
from tenon.capture.code_origin import IN_PLACE
from tenon.capture.convert import builtins_in_python
from tenon.capture.convert.callees import callee, getter, own_truth
from tenon.capture.convert.capture_branches import BranchCapture, Plain, decide
from tenon.capture.convert.capture_while import WhileCapture
from tenon.capture.convert.captured_text import filled_in, text_of
from tenon.capture.convert.comprehensions import Filtered, perhaps_made, without_missing
from tenon.capture.convert.container_methods import in_place_of
from tenon.capture.convert.dynamic_containers import (
    attribute,
    contained,
    containers_equal,
    content,
    counted,
    is_counted,
    unpacked,
    view_of,
)
from tenon.capture.convert.optional_elements import is_perhaps, is_undecided, negated
from tenon.capture.convert.reachable import OfCapture
from tenon.capture.convert.text_options import MORE_THAN_ONE, on_strings
from tenon.capture.convert.traced_getitem import Key, TracedItem, item
from tenon.capture.convert.traced_iterables import Each, is_open_ended
from tenon.capture.convert.union_value import UNBOUND, UnionValue
from tenon.capture.output_effects import formatted
from tenon.capture.runtime_numbers import RuntimeNumber, attribute_of, is_number, is_one_number, strong
from tenon.dims.undecided_sizes import for_user
from tenon.errors import user_location
from tenon.tensor import Tensor
from tenon.tensor_state import recorder

if TYPE_CHECKING:
    from tenon.capture.convert.converting_capture import ConvertingCapture

THEN, OTHERWISE = (Plain(True),), (Plain(False),)


def holds_number(value: Any) -> bool:
    """Whether a value is a number that the graph computes, or holds one, as far as patterns look into it."""
    if isinstance(value, (tuple, list)):
        return any(map(holds_number, value))
    inside = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    return type(value) is RuntimeNumber or any(
        type(x) is RuntimeNumber or (isinstance(x, (tuple, list)) and holds_number(x)) for x in list(inside.values()))


def capture_now() -> ConvertingCapture | None:
    """The capture that this code runs in, where it is one that converts."""
    capture = cast("ConvertingCapture | None", recorder.get())
    return capture if capture is not None and capture.converting else None


class Runtime(OfCapture, local):
    """The functions of rewritten code; what they keep between two calls belongs to a thread."""

    UNBOUND, AssertionError = UNBOUND, AssertionError
    locals = staticmethod(builtins.locals)
    key = Key()
    value: Any = None
    test: Any = None
    newest: Any = None
    shared = False          # whether a generator goes through an iterator that has a name

    # ------------------------------------------------------------ statements

    def branch(self, value: Any) -> tuple[Plain, ...] | None:
        """The arm that a Python value chooses; None for a tensor, which is kept."""
        if self.data(value):
            return None
        return THEN if value else OTHERWISE

    def fork(self, scope: Mapping[str, Any], names: Sequence[str], yields: bool) -> Iterable[Plain | BranchCapture]:
        """Both arms of the tensor just kept."""
        capture, test = capture_now(), self.tested()
        assert capture is not None
        truth = capture.truth(test)
        if isinstance(truth, bool):
            return THEN if truth else OTHERWISE
        if yields:
            raise UnsafeCall("a generator yields under a condition on a tensor", where=user_location())
        return BranchCapture(capture, strong(truth), scope, names)

    def loop(self, names: Sequence[str], live: Sequence[str], broken: str | None, yields: bool) -> WhileCapture:
        """A `while` loop."""
        return WhileCapture(capture_now(), names, live, broken, yields)

    def each(self, iterable: Any, names: Sequence[str], live: Sequence[str], broken: str | None, yields: bool) -> Each:
        """A `for` loop."""
        return Each(capture_now(), iterable, names, live, broken, yields)

    # ------------------------------------------------------------ conditions

    def data(self, value: Any) -> bool:
        """Whether the graph decides, or a user's `__bool__`, which is asked once; keeps the value, and what it gave."""
        capture = capture_now()
        if capture is None:
            self.value = value
            return False
        if type(value) is UnionValue or (capture.undecided and is_undecided(value)):
            test = capture.truth(value)         # which may ask a user's `__bool__`, so once, and first
            self.value, self.test = value, test
            return True
        if capture.is_data(value):
            self.value = self.test = value = capture.decided(value)
            return capture.is_data(value)
        self.value, self.test = value, own_truth(value)
        return self.test is not value

    def kept(self) -> Any:
        """The value that `data` kept."""
        value, self.value = self.value, None
        return value

    def tested(self) -> Any:
        """What says whether the value that `data` kept counts as true."""
        test, self.test, self.value = self.test, None, None
        return test

    def asked(self, value: Any) -> Any:
        """In a condition: what a user's `__bool__` gives, and any other value itself."""
        return own_truth(value)

    def truth(self, value: Any) -> Any:
        """Whether a value counts as true."""
        return capture.truth(self.tested()) if self.data(value) and (capture := capture_now()) else bool(self.kept())

    def negate(self, value: Any) -> Any:
        """`not value`."""
        return negated(self.truth(value))

    def both(self, later: Callable[[], Any]) -> Any:
        """`kept and later()`."""
        value = self.value
        return self.decide(self.tested(), later, lambda: value)

    def either(self, later: Callable[[], Any]) -> Any:
        """`kept or later()`."""
        value = self.value
        return self.decide(self.tested(), lambda: value, later)

    def choose(self, then: Callable[[], Any], other: Callable[[], Any]) -> Any:
        """`then() if kept else other()`."""
        return self.decide(self.tested(), then, other)

    def decide(self, condition: Any, then: Callable[[], Any], other: Callable[[], Any]) -> Any:
        """Call one of two functions, as the graph decides."""
        capture = capture_now()
        assert capture is not None
        return decide(capture, condition, then, other)

    # ------------------------------------------------------------ values

    def read(self, value: Any, name: str) -> Any:
        """The value of a variable that a condition may have given one of several."""
        if type(value) is not UnionValue:
            return value
        capture = capture_now()
        return value if capture is None else capture.settled(value, name)

    def held(self, value: Any, name: str) -> Any:
        """The value of a variable that is only kept or returned: it may be one of several, but has to be there."""
        if type(value) is not UnionValue:
            return value
        capture = capture_now()
        return value if capture is None else capture.bound(value, name)

    @for_user
    def item(self, holder: Any, index: Any) -> Any:
        """`holder[index]`."""
        return item(capture_now(), self.indexed(holder), index)

    def place(self, holder: Any, index: Any) -> TracedItem:
        """`holder[index]` where it is stored to: `.item` of this."""
        return TracedItem(capture_now(), self.indexed(holder), index)

    def within(self, outer: TracedItem, index: Any) -> TracedItem:
        """`holder[i][index]` where it is stored to, and with it `holder[i]`, which may be a slice."""
        return TracedItem(capture_now(), self.indexed(outer.item), index, outer)

    def changing(self, place: TracedItem, name: str) -> Any:
        """`holder[i].name`, which may change a slice in place."""
        return place.changing(name, self.call)

    def indexed(self, holder: Any) -> Any:
        """What `[...]` is asked of in the place of a container."""
        capture = capture_now()
        return holder if capture is None or not capture.irregular else view_of(capture, holder)

    def get(self, holder: Any, name: str) -> Any:
        """`holder.name`."""
        capture = capture_now()
        if type(holder) is RuntimeNumber:
            return attribute_of(holder, name)
        if name == "requires_grad" and capture is not None and isinstance(holder, Tensor):
            return capture.requires_grad_of(holder)
        if name in ("shape", "size") and capture is not None and capture.sized and isinstance(holder, Tensor):
            found = getter(holder, name)
            return tuple(map(capture.seen_by_user, found)) if name == "shape" else capture.seen_by_user(found)
        if capture is None or not capture.irregular:
            return getter(holder, name)
        if type(holder) is UnionValue:
            return capture.each(holder, lambda x: self.get(x, name))
        found = getter(holder, name)
        return attribute(capture, holder, name, found) if is_perhaps(found) else found

    def kind(self, holder: Any) -> Any:
        """`holder.__class__`."""
        return self.call(type)(holder) if type(holder) is UnionValue or isinstance(holder, Tensor) else holder.__class__

    def unpack(self, value: Any, pattern: Sequence[Any]) -> Any:
        """What is unpacked into variables: `None` is one, `"*"` is one with a star."""
        capture = capture_now()
        return value if capture is None or not capture.irregular else unpacked(capture, value, pattern)

    def listed(self, value: Any) -> Any:
        """What stands behind a star in a list or a tuple."""
        capture = capture_now()
        return value if capture is None or not capture.irregular else content(capture, value)

    def perhaps(self, condition: Any, make: Callable[[], Any]) -> Any:
        """An element of a comprehension that is there where the condition holds."""
        return perhaps_made(capture_now(), self.truth(condition), make)

    def filtered(self, items: list[Any]) -> list[Any]:
        """The list that a comprehension makes."""
        return without_missing(items)

    def filtering(self, items: Any) -> Filtered:
        """The generator that an expression makes."""
        return Filtered(items)

    def fresh(self, iterable: Any) -> Any:
        """An argument that was made for the call that follows, so that nobody else has it."""
        self.newest, self.shared = None if self.shared else iterable, False
        return iterable

    def named(self, iterable: Any) -> Any:
        """What the generator of the next `fresh` goes through."""
        self.shared = self.shared or hasattr(type(iterable), "__next__")
        return iterable

    def is_fresh(self, iterable: Any) -> bool:
        """Whether this is such an argument."""
        newest, self.newest = self.newest, None
        return newest is iterable

    def text(self, parts: Sequence[Any]) -> Any:
        """What an f-string of these parts gives."""
        capture = capture_now()
        if capture is not None:
            return text_of(capture, parts)
        return "".join([x if type(x) is str else formatted(*x) for x in parts])

    def percent(self, left: Any, right: Any) -> Any:
        """`left % right`, which formats text."""
        capture = capture_now()
        return left % right if type(left) is not str or capture is None else filled_in(capture, left, right)

    def open(self, value: Any) -> bool:
        """Whether a comprehension goes through what the data decide the elements of; keeps the value."""
        capture = capture_now()
        self.value = value
        return capture is not None and (is_open_ended(value) or (
            capture.irregular and (is_undecided(value) or capture.is_several(value))))

    def parts(self, make: Callable[[Any], list[Any]]) -> Any:
        """What a comprehension makes of each of these elements."""
        capture = capture_now()
        assert capture is not None
        return callee(builtins_in_python.mapped)(content(capture, self.kept()), make)

    def certain(self, value: Any) -> Any:
        """A value whose elements Python is going to count."""
        capture = capture_now()
        return value if capture is None or not capture.irregular else counted(capture, value)

    def matched(self, value: Any) -> Any:
        """A value into which Python looks by class and identity, which numbers of the graph do not have."""
        if capture_now() is not None and holds_number(value):
            raise UnsafeCall("a pattern asks for the class of a number, as the data decide", where=user_location(),
                             hint="match the number by itself, or compare it")
        return self.certain(value)

    def call(self, function: Any, made: bool = False) -> Any:
        """What to call in the place of a function, which may be one of several; `made`: with arguments that are made
        after this is asked, and may be the first that hold as many elements as the data decide."""
        capture = capture_now()
        if capture is None or not (capture.irregular or made or type(function) is UnionValue):
            return callee(function)
        if type(function) is UnionValue:
            def call(*args: Any, **keywords: Any) -> Any:
                def one(f: Any) -> Any:
                    return self.call(f)(*args, **keywords)
                IN_PLACE.add(one.__code__)
                value = MORE_THAN_ONE if keywords else on_strings(capture, function, operator.call, args)
                return capture.each(function, one) if value is MORE_THAN_ONE else value
            return call
        return in_place_of(capture, function)

    def result(self, value: Any) -> Any:
        """What a function returns; flags say that it has something."""
        capture = capture_now()
        return value if type(value) is not UnionValue or capture is None else capture.narrowed(value, drop=UNBOUND)

    def same(self, left: Any, right: Any) -> Any:
        """`left is right`."""
        capture = capture_now()
        if capture is not None and isinstance(left, Tensor) and isinstance(right, Tensor) \
                and capture.may_be_another(left, right):
            raise UnsafeCall("whether two tensors are one is asked, as the data decide", where=user_location())
        if capture is not None and RuntimeNumber in (type(left), type(right)) and is_number(left) and is_number(right):
            return is_one_number(left, right)
        return self.compared(operator.is_, left, right)

    def equal(self, left: Any, right: Any) -> Any:
        """`left == right`."""
        return self.compared(operator.eq, left, right)

    def unequal(self, left: Any, right: Any) -> Any:
        """`left != right`."""
        return self.compared(operator.ne, left, right)

    @for_user
    def contains(self, wanted: Any, container: Any) -> Any:
        """`wanted in container`."""
        capture = capture_now()
        if capture is None or not capture.irregular:
            return wanted in container
        return contained(capture, wanted, container)

    def compared(self, compare: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        """A comparison, option by option where a side is one of several values."""
        capture = capture_now()
        if capture is not None and capture.irregular and compare is not operator.is_ and is_counted(left, right):
            same = containers_equal(capture, left, right)
            return same if compare is operator.eq else self.negate(same)
        if capture is None or (type(left) is not UnionValue and type(right) is not UnionValue):
            return compare(left, right)
        if type(left) is UnionValue:
            return capture.each_option(left, lambda x: self.compared(compare, x, right))
        return capture.each_option(right, lambda x: compare(left, x))


RUNTIME = Runtime()
