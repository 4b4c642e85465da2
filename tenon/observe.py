"""What happens inside Tenon -> whoever subscribed.  The one hook for debugging tools; nothing else prints or logs.

    stop = subscribe(lambda event: print(event.name, event.seconds, event.fields))
    with span("compile", kernel="matmul"): ...      # one event at its end, with how long it took
    emit("fallback", reason="item")                 # one event, of no length
    stop()

Without a subscriber both cost a function call and nothing more.  `timed` adds up what a thing has taken for whoever
asks later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType

from tenon.locks import Lock
from tenon.records import dataclass, field


@dataclass(frozen=True)
class Event:
    """Spans are reported when they end, so an inner span comes before the one around it."""

    name: str
    fields: Mapping[str, object]
    start: float  # on the clock of time.perf_counter()
    seconds: float = 0.0
    thread: int = field(default_factory=threading.get_ident)


_subscribers: tuple[Callable[[Event], None], ...] = ()
_changing = Lock()
_NO_SPAN = nullcontext()


def subscribe(callback: Callable[[Event], None]) -> Callable[[], None]:
    """Call `callback` with every event, in the thread where it happens, until the returned function is called."""
    global _subscribers

    def hear(event: Event) -> None:  # a new object, so that one callback may subscribe twice
        callback(event)

    def unsubscribe() -> None:
        global _subscribers
        with _changing:
            _subscribers = tuple(one for one in _subscribers if one is not hear)

    with _changing:
        _subscribers = (*_subscribers, hear)
    return unsubscribe


def emit(event: str, /, **fields: object) -> None:
    """Report that something happened."""
    if _subscribers:
        _report(Event(event, fields, time.perf_counter()))


def span(name: str, /, **fields: object) -> AbstractContextManager[None]:
    """Report how long the body of the `with` took; a body that raises is reported with `error=`."""
    return _Span(name, fields) if _subscribers else _NO_SPAN


@contextmanager
def timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Add how long the body of the `with` took, unless it raises."""
    started = time.perf_counter()
    yield
    seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - started


class _Span:
    def __init__(self, name: str, fields: dict[str, object]) -> None:
        self.name, self.fields = name, fields

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None:
            self.fields["error"] = kind.__name__
        _report(Event(self.name, self.fields, self.start, time.perf_counter() - self.start))


def _report(event: Event) -> None:
    for hear in _subscribers:
        hear(event)
