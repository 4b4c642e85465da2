"""Streams, generators of random numbers, queues, weak references, variables of a context -> what they hold now."""

from __future__ import annotations

import contextvars
import decimal
import random
from functools import partial
from typing import Any

from numpy.random import Generator, RandomState

from tenon.capture.guard_readers import context_of_decimals, generator_state, referent, set_generator_state, value_of
from tenon.capture.kept_state import KeptThing
from tenon.capture.reached_values import ReachedValues
from tenon.capture.text_streams import is_closed, position, set_position


class ReachedState(ReachedValues):
    """What is behind the state of Python's own objects."""

    def _add_stream(self, value: Any, path: str) -> None:
        """A file that the function can only write to, or whose position says whether it was read."""
        if self.codes is None:
            self.kept.append(KeptThing(value, position, set_position, path))
        else:
            self._items(is_closed, value, (False,), path, [".closed"], follow=False)

    def _add_context(self, manager: Any, path: str) -> None:
        """A context manager made of a generator, which begins anew where it decorates a function."""
        for name in ("func", "args", "kwds"):
            self.add(getattr(manager, name), path)

    def _add_synchronized(self, value: Any, path: str) -> None:
        """What other threads change at any time: what hands something over to them runs with graph breaks."""
        if self.codes is not None:
            self._add_object(value, path)

    def _add_random(self, value: Any, path: str) -> None:
        if self.codes is None:
            read, put_back = (random.Random.getstate, random.Random.setstate) if isinstance(value, random.Random) else \
                (generator_state, set_generator_state) if isinstance(value, Generator) else \
                (partial(RandomState.get_state, legacy=False), RandomState.set_state)
            self.kept.append(KeptThing(value, read, put_back, path))

    def _add_reference(self, value: Any, path: str) -> None:
        if self.codes is None:
            self.add(value(), path)
        else:
            self._references.append((value, path))

    def add_references(self) -> None:
        """Weak references, at the end: a guard would keep alive what nothing else that was found holds."""
        for reference, path in self._references:
            target = reference()
            if target is None or id(target) in self.known():
                self._items(referent, reference, (target,), path)
            else:
                self.opaque.append(f"{path} refers weakly to what may be gone in another call")
        self._references.clear()

    def _add_decimal(self, value: decimal.Decimal, path: str) -> None:
        self.add(type(value), type(value).__name__)

    def add_decimals(self) -> None:
        """The context that decimals are computed in, where the code finds their class, or some of them."""
        if id(decimal.Decimal) in self._visited or decimal.Decimal.__name__ in self._own_names:
            self._items(context_of_decimals, decimal, context_of_decimals(decimal), "the context of decimals",
                        follow=False)

    def _add_variable(self, value: contextvars.ContextVar[Any], path: str) -> None:
        self._items(value_of, value, value_of(value), path)
