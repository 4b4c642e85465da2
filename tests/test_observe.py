"""span() and emit(): subscribers hear everything, and without one nothing happens."""

import pytest

from tenon.observe import emit, span, subscribe


@pytest.fixture
def heard():
    events = []
    stop = subscribe(events.append)
    yield events
    stop()


def test_an_event_carries_its_fields(heard):
    emit("fallback", reason="item")
    assert [(e.name, e.fields, e.seconds) for e in heard] == [("fallback", {"reason": "item"}, 0.0)]


def test_spans_are_reported_at_their_end_and_lie_within_each_other(heard):
    with span("outer", name="a"), span("inner"):
        pass
    inner, outer = heard
    assert (inner.name, outer.name, outer.fields) == ("inner", "outer", {"name": "a"})
    assert outer.start <= inner.start and inner.start + inner.seconds <= outer.start + outer.seconds


def test_a_span_whose_body_raises_says_so_and_lets_the_error_pass(heard):
    with pytest.raises(KeyError), span("load"):
        raise KeyError("x")
    assert heard[0].fields == {"error": "KeyError"}


def test_who_unsubscribed_hears_nothing_and_the_others_go_on(heard):
    events = []
    stop = subscribe(events.append)
    stop()
    stop()
    emit("once")
    assert not events and len(heard) == 1


def test_without_a_subscriber_no_span_is_made():
    assert span("a") is span("b", x=1)
