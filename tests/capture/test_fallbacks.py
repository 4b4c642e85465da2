"""The catalogue of docs/fallbacks.md: each entry runs with graph breaks as eager code does, and is refused by
`fullgraph=True` with these words, at this line."""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.errors import CaptureError

PAGE = Path(__file__).parents[2] / "docs" / "fallbacks.md"
X = tn.tensor([1.0, 2.0, 3.0])
ARRAY = np.zeros(3, np.float32)
SHARED: list[int] = []
LAST: list[Any] = [None]
WEIGHT = tn.ones(3, requires_grad=True)
LARGE = np.ones(100_000, np.float32)
TICKS = itertools.count()


class Box:
    pass


def value_in_python(x):
    return x * min(x.tolist())  # here


def computed_by_numpy(x):
    return tn.asarray(np.spacing(x)) * 2  # here


def text_of_a_tensor(x):
    return x, str(x).split()  # here


def size_by_the_data(x):
    if x.sum() > 0:
        x = x[x > 1.5]  # here
    return x


def acts_outside_the_program(x):
    return x * (time.time() * 0)  # here


def iterator_is_moved(x):
    return x * (next(TICKS) * 0)  # here


def array_is_changed(x):
    ARRAY[0] += 1
    return x + 1


def large_array_is_read_in_python(x):
    return x * float(LARGE[7])


def new_object(x):
    class Made(Box):
        pass
    box = Made()
    box.x = x * 2
    return box


def identity_is_kept(x):
    same, LAST[0] = LAST[0] == id(x), id(x)
    return x * (2 if same else 1)


def container_found_twice(items, x):
    SHARED.append(1)
    return x * len(items)


def elements_by_the_data(x):
    found = []
    if x.sum() > 0:
        found.append(1)
    return x * len(set(found))  # here


def function_by_the_data(x):
    act = tn.tanh if x.sum() > 0 else tn.exp
    return {act: x}[act] * 2


def halves(x):
    while x.max() > 1:
        yield x
        x = x / 2


def generator_on_a_condition(x):
    return sum(halves(x), x)


def hook_left_on_the_tape(x):
    y = x * WEIGHT
    y.register_hook(lambda gradient: gradient * 2)  # here
    return y.sum()


# What is said, and whether the line is known.
ENTRIES: dict[Callable[..., Any], tuple[str, bool]] = {
    value_in_python: ("needs the value of a tensor", True),
    computed_by_numpy: ("conversion to NumPy needs the value of a tensor", True),
    text_of_a_tensor: ("the text of a tensor shows its elements", True),
    size_by_the_data: ("depends on the data", True),
    acts_outside_the_program: ("acts outside the program", True),
    iterator_is_moved: ("moves an iterator|is an iterator", False),
    array_is_changed: ("is changed by the function", False),
    large_array_is_read_in_python: ("read outside the graph", False),
    new_object: ("makes an object of type Made", False),
    identity_is_kept: ("identity of an argument is kept", False),
    container_found_twice: ("is one that the function finds elsewhere too", False),
    elements_by_the_data: ("is called with a container", True),
    function_by_the_data: ("as the data decide", False),
    generator_on_a_condition: ("a loop whose condition is a tensor yields", False),
    hook_left_on_the_tape: ("the hook of a gradient is left on the tape", True),
}


def arguments(function, x):
    """What an entry is called with."""
    SHARED[:], LAST[:] = [], [None]
    return (SHARED, x) if function is container_found_twice else (x,)


def plain(value):
    if isinstance(value, Box):
        return plain(vars(value))
    if isinstance(value, dict):
        return {key: plain(x) for key, x in value.items()}
    return [plain(x) for x in value] if isinstance(value, (list, tuple)) else \
        np.round(value.detach().numpy(), 4).tolist() if isinstance(value, tn.Tensor) else value


@pytest.mark.parametrize("function", ENTRIES, ids=lambda f: f.__name__)
def test_it_runs_with_graph_breaks_as_eager_code_does(function, capsys):
    jitted = tn.jit(function)
    for x in (X, -X, X):
        want, printed = plain(function(*arguments(function, x))), capsys.readouterr().out
        assert plain(jitted(*arguments(function, x))) == want and capsys.readouterr().out == printed


@pytest.mark.parametrize("function", ENTRIES, ids=lambda f: f.__name__)
def test_fullgraph_raises_the_reason(function):
    words, has_line = ENTRIES[function]
    with pytest.raises(CaptureError, match=words) as caught:
        for x in (X, -X):
            tn.jit(function, fullgraph=True)(*arguments(function, x))
    if has_line:
        line = Path(caught.value.where.file).read_text().splitlines()[caught.value.where.line - 1]
        assert line.endswith("# here") and line in Path(__file__).read_text() and "^" in str(caught.value)


def test_the_page_has_every_entry_and_no_other():
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    named = {row[1].strip() for row in rows} - {"name"}
    assert named == {function.__name__.replace("_", " ") for function in ENTRIES}
    assert all(row[2].strip() and row[3].strip() for row in rows)


def test_a_loop_that_catches_everything_ends():
    def patient(x):
        n = 0
        while True:
            try:
                n += 1
                if x.tolist()[0] > 0:
                    return x * n
                x = x + 1
            except:  # noqa: E722
                pass
    jitted = tn.jit(patient)
    for values in ([1.0], [-2.0], [1.0]):
        assert jitted(tn.tensor(values)).tolist() == patient(tn.tensor(values)).tolist()


def test_a_graph_that_never_holds_the_way_of_the_call_is_left():
    def deep(x, n=40):
        return deep(x + 1, n - 1) if n > 0 and x.sum() > 0 else x
    jitted = tn.jit(deep)
    for _ in range(20):
        assert jitted(tn.tensor([1.0])).tolist() == [41.0]
    assert "its first 16 calls" in str(tn.explain(jitted))
    assert jitted(tn.tensor([-1.0])).tolist() == [-1.0]


def test_equal_code_without_source_does_not_stand_for_that_of_a_file(tmp_path):
    """What is said of code holds for its file: the same lines may stand in another one, or nowhere."""
    file = tmp_path / "equal_code.py"
    file.write_text("def f(x):\n    if x.sum() > 0:\n        return x + 1\n    return x - 1\n")

    def made(name):
        names = {}
        exec(compile(file.read_text(), name, "exec"), names)
        return names["f"]
    nowhere, there = made("<nowhere>"), made(str(file))
    assert nowhere.__code__ == there.__code__
    assert tn.jit(nowhere)(tn.tensor([1.0])).tolist() == [2.0]
    jitted = tn.jit(there, fullgraph=True)
    assert [jitted(tn.tensor([x])).tolist() for x in (1.0, -1.0)] == [[2.0], [-2.0]]
