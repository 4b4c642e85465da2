"""A text of Tenon's that the program reads has the sizes of its call in it; a need of a number that it catches is met."""

import traceback
from collections.abc import Callable
from typing import Any

import pytest

import tenon as tn

SIZES = (4, 3, 2, 9, 5, 3)


def text(x: Any, y: Any) -> Any:
    try:
        return x @ y
    except ValueError as error:
        return str(error), f"failed: {error}", "%s and %r" % (error, error)     # noqa: UP031


def representation(x: Any, y: Any) -> Any:
    try:
        return x @ y
    except ValueError as error:
        return repr(error)


def arguments(x: Any, y: Any) -> Any:
    try:
        return x @ y
    except ValueError as error:
        return error.args


def told_by_a_library(x: Any, y: Any) -> Any:
    try:
        return x @ y
    except ValueError:
        return traceback.format_exc().splitlines()[-1], traceback.format_exc().splitlines()[-5]


def beside_data(x: Any, y: Any) -> Any:
    x = x[x > 0]
    if x.sum() > 0:
        x = x + 1
    try:
        return x @ y
    except ValueError as error:
        return str(error), error.args[0]


def printed(x: Any, y: Any) -> Any:
    try:
        return x @ y
    except ValueError as error:
        print(error)


def other_error(x: Any, y: Any) -> Any:
    try:
        return x @ y
    except ValueError as error:
        raise KeyError(f"{type(error).__name__}: {error}") from error


def a_type(x: Any, y: Any) -> Any:
    return str(y.type), f"{y.type}", repr(y.type), [y.type]


def by_number(x: Any, y: Any) -> Any:
    try:
        return x @ tn.ones(len(y))
    except ValueError as error:
        return str(error)


def outcome(function: Callable[..., Any], size: int, capsys: Any) -> Any:
    try:
        found = function(tn.ones(4), tn.ones(size))
    except Exception as error:
        found = type(error), str(error)
    return str(found), capsys.readouterr().out


@pytest.mark.parametrize("function", [text, representation, arguments, told_by_a_library, beside_data, printed,
                                      other_error, a_type, by_number])
def test_texts_as_eagerly(function: Callable[..., Any], capsys: Any) -> None:
    jitted = tn.jit(function)
    for size in SIZES:
        assert outcome(function, size, capsys) == outcome(jitted, size, capsys), size


def test_an_error_that_nobody_reads_is_one_capture_for_all_sizes() -> None:
    @tn.jit(fullgraph=True)
    def either(x: Any, y: Any) -> Any:
        try:
            return x @ y
        except ValueError:
            return None

    assert [either(tn.ones(4), tn.ones(size)) is None for size in SIZES] == [size != 4 for size in SIZES]
    assert len(next(iter(either.records.values())).captures) == 2


def as_a_key(x: Any) -> Any:
    try:
        return {x.shape[0]: 1}
    except:     # noqa: E722
        return "failed"


def in_the_end(x: Any) -> Any:
    found = "nothing"
    try:
        found = hash(x.shape[0])
    finally:
        return found    # noqa: B012


def and_raises(x: Any) -> Any:
    try:
        return {x.shape[0]: 1}
    except BaseException as error:
        raise ValueError(type(error).__name__) from None


@pytest.mark.parametrize("function", [as_a_key, in_the_end, and_raises])
def test_what_catches_everything_does_not_see_that_a_number_is_needed(function: Callable[..., Any]) -> None:
    jitted = tn.jit(function)
    for size in SIZES:
        assert jitted(tn.ones(size)) == function(tn.ones(size)), size
