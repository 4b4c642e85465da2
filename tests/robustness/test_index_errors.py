"""An index out of range is an error of compiled code too, where the result does not depend on what is read there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tenon as tn

PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "rows that are all alike": lambda x, i: tn.take(tn.broadcast_to(x, (5, 3)), i, axis=0),
    "rows that repeat": lambda x, i: tn.take(tn.repeat(x[None], 5, axis=0), i, axis=0),
    "rows of tiles": lambda x, i: tn.take(tn.tile(x[None], (5, 1)), i, axis=0),
    "rows of tiles, turned": lambda x, i: tn.take(tn.tile(x[:, None], (1, 5)).T, i, axis=0),
    "elements of tiles": lambda x, i: tn.take_along_axis(tn.tile(x[None], (5, 1)), i[:, None], axis=0),
    "one number": lambda x, i: tn.take(tn.full((5, 3), 2.0), i, axis=0) + x,
    "multiplied by zero": lambda x, i: tn.take(tn.astype(x, tn.int32), i % 7) * 0,
    "subtracted from itself": lambda x, i: (lambda y: y - y)(tn.take(tn.astype(x, tn.int32), i)),
    "never chosen": lambda x, i: tn.where(tn.tensor(True), x[0], tn.take(x, i)),
    "a choice of two that are alike": lambda x, i: tn.where(tn.take(x > 0, i), x[:2], x[:2]),
    "a truth that does not matter": lambda x, i: tn.logical_and(tn.take(x > 0, i), tn.tensor(False)),
    "nobody reads it": lambda x, i: (tn.take(x, i), x * 2)[1],
    "cut off": lambda x, i: tn.take(x, i)[:1],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_index_out_of_range_is_an_error_eagerly_and_compiled(name: str) -> None:
    program, x, inside, outside = PROGRAMS[name], tn.ones(3), tn.tensor([0, 1]), tn.tensor([1, 6])
    compiled = tn.jit(program, fullgraph=True)
    for _ in range(3):
        assert compiled(x, inside).tolist() == program(x, inside).tolist()
    for run in (program, compiled):
        with pytest.raises(IndexError, match="index 6 is out of range"):
            run(x, outside)


def written(x: Any, i: Any) -> Any:
    y = tn.clone(x)
    y[i] = 1.0
    return y


WITHOUT_ELEMENTS: dict[str, Callable[[Any, Any], Any]] = {
    "rows": lambda x, i: tn.take(x, i, axis=0),
    "a row": lambda x, i: tn.take(x, i[1], axis=0),
    "a row that is known": lambda x, i: tn.take(x, 1 if i is INSIDE else 6, axis=0),
    "added up": lambda x, i: tn.take(x * 2, i, axis=0).sum(),
    "rows of an embedding": lambda x, i: tn.embedding(i, x),
    "by brackets": lambda x, i: x[i],
    "the gradient": lambda x, i: tn.grad(lambda x: tn.take(x, i, axis=0).sum())(x),
    "added to": lambda x, i: tn.index_add(x, i, tn.zeros((2, 0)), axis=0),
    "filled": lambda x, i: tn.index_fill(x, i, 1.0, axis=0),
    "written": written,
    "a batch": lambda x, i: tn.vmap(lambda i: tn.take(x, i, axis=0))(i),
    "in a loop": lambda x, i: tn.scan(lambda c, k: (c + tn.take(x, k, axis=0).sum(), k), 0.0, i)[0],
}
INSIDE, OUTSIDE = tn.tensor([0, 1]), tn.tensor([1, 6])


@pytest.mark.parametrize("name", WITHOUT_ELEMENTS)
def test_an_index_out_of_range_is_an_error_where_rows_have_no_elements(name: str) -> None:
    program, x = WITHOUT_ELEMENTS[name], tn.zeros((5, 0))
    compiled = tn.jit(program)
    for _ in range(3):
        assert compiled(x, INSIDE).tolist() == program(x, INSIDE).tolist()
    for run in (program, compiled):
        with pytest.raises(IndexError, match="index 6 is out of range"):
            run(x, OUTSIDE)


@pytest.mark.parametrize("wrap", [tn.jit, lambda f: f])
@pytest.mark.parametrize("loss", ["cross_entropy", "nll_loss", "multi_margin_loss"])
def test_a_negative_class_is_none(loss: str, wrap: Callable[..., Any]) -> None:
    """-1, with which labels are often padded, is not the last class."""
    scores = tn.tensor([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]])
    function = getattr(tn.nn.functional, loss)
    f = wrap(lambda x, y: function(x, y))
    assert f(scores, tn.tensor([0, 2])).shape == ()
    with pytest.raises(IndexError, match="out of range"):
        f(scores, tn.tensor([0, -1]))


def test_no_class_is_an_error_but_where_there_is_none_to_find() -> None:
    def program(i: Any, n: int) -> Any:
        return tn.one_hot(i, n)
    compiled = tn.jit(program)
    for run in (program, compiled):
        for n in (2, 3, 0):
            assert run(tn.zeros(0, dtype=tn.int64), n).shape == (0, n)
            if n:
                assert run(tn.tensor([0, 1]), n).shape == (2, n)
        with pytest.raises(IndexError, match="there are no classes"):
            run(tn.tensor([0, 1]), 0)


@pytest.mark.parametrize("classes", [1, 2])
def test_a_class_out_of_range_is_an_error_where_all_are_alike(classes: int) -> None:
    for count in (lambda n: classes), (lambda n: n):
        program = lambda i, n, of=count: tn.one_hot(i, of(n))
        compiled = tn.jit(program, fullgraph=True)
        for n in (2, 3, classes):
            assert compiled(tn.tensor([0, 0]), n).tolist() == program(tn.tensor([0, 0]), n).tolist()
        for run in (program, compiled):
            with pytest.raises(IndexError, match=f"index {classes} is out of range"):
                run(tn.tensor([0, classes]), classes)
