"""A text that changes from call to call is an input of the graph, as far as it is not a key: few captures, same results."""

import re

import pytest

import tenon as tn

TEXTS = ("train 1", "Train 2", "eval", "", "a,b,c", "12", "x%sy", "é ü", "train 1", "zz", "a", "b", "ab", "eval", "3.5")


def as_float(x, t):
    try:
        return x * float(t)
    except ValueError:
        return x


def matched(x, t):
    match t:
        case "eval":
            return x * 2
        case str() as other:
            return x, other


INPUTS = [
    lambda x, t: x * 2 if t == "eval" else x, lambda x, t: x * 2 if "a" in t else x,
    lambda x, t: x if t < "m" else x * 3, lambda x, t: x if t.startswith(("tr", "e")) else x * 3,
    lambda x, t: (t.upper(), t.replace("a", "b").strip(), t.find("a"), x), lambda x, t: (t[:1], t[::-1], x),
    lambda x, t: x * int(t) if t.isdigit() else x, lambda x, t: f"{t}!{x.sum().item():.2f}",
    lambda x, t: (f"{t:>10}|{t!r}|{t}", x), lambda x, t: ("<" + t + ">", t + t, x), lambda x, t: (f"[{t:>4}]", x),
    lambda x, t: ("-".join([t, "a"]), f"{t}:{t}", x), lambda x, t: ([t, (t, x)], {"k": t}),
    lambda x, t: (t or "none", x), lambda x, t: x * (t.lower() == "train 1"), matched,
    lambda x, t: x * len(t), lambda x, t: len(f"{t}!") + x,
]
BY_VALUE = [
    lambda x, t: x * {"eval": 2, "a": 3}.get(t, 1), lambda x, t: x * 2 if t in {"eval", "a"} else x,
    lambda x, t: (list(t), x), lambda x, t: (t.split(","), x), lambda x, t: (bool(re.match("train", t)), x),
    lambda x, t: (type(t) is str, isinstance(t, str), x), lambda x, t: getattr(tn, t, lambda v: v)(x),
    lambda x, t: {t: x}, lambda x, t: {f"{t}/loss": x.sum().item()}, as_float,
]


def called(function, k):
    return repr(function(tn.tensor([1.0 + k % 3, 2.0]), TEXTS[k % len(TEXTS)]))


def captures(function):
    return sum(len(record.captures) for x in function.with_pieces() for record in x.records.values())


@pytest.mark.parametrize("k", range(len(INPUTS)))
def test_an_input(k):
    jitted = tn.jit(INPUTS[k])
    for n in range(2 * len(TEXTS)):
        assert called(jitted, n) == called(INPUTS[k], n)
    assert captures(jitted) <= 4


@pytest.mark.parametrize("k", range(len(BY_VALUE)))
def test_a_key_or_a_sequence_of_letters_is_left_to_python(k):
    jitted = tn.jit(BY_VALUE[k])
    for n in range(2 * len(TEXTS)):
        assert called(jitted, n) == called(BY_VALUE[k], n)
    assert captures(jitted) <= 3


def test_a_number_that_raises_is_no_other_number():
    def inverse(x, n):
        try:
            return x * (1 / n)
        except ZeroDivisionError:
            return x
    jitted = tn.jit(inverse)
    for n in (1, 0, 2, 0, 4):
        assert repr(jitted(tn.ones(2), n)) == repr(inverse(tn.ones(2), n))


def test_an_attribute():
    class Log:
        tag, last = "", ""
    log = Log()

    @tn.jit
    def step(x):
        log.last = f"{log.tag}: {x.sum().item():.1f}"
        return x * 2
    for k in range(8):
        log.tag = f"step {k}"
        step(tn.ones(2) * k)
        assert log.last == f"step {k}: {2 * k:.1f}"
    assert captures(step) <= 2


def test_a_text_that_stays_is_a_condition():
    @tn.jit
    def f(x, mode):
        return x * 2 if mode == "train" else x
    assert [f(tn.ones(1), mode).item() for mode in ("train", "eval", "train", "eval")] == [2, 1, 2, 1]
    assert captures(f) == 2
