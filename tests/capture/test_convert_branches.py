"""Conditions on tensors: every form in which Python writes them, in one graph, as eager code decides them."""

import subprocess
import sys

import numpy as np
import pytest

import tenon as tn
from capture.both import VECTORS, captures, check


def test_if_elif_else():
    def f(x):
        if x.sum() > 5:
            y = x * 2
        elif x.sum() > 0:
            y = x - 1
        elif x[0] < 0:
            y = -x
        else:
            y = x + 10
        return y
    check(f)
    assert captures(f, *VECTORS) == 1


def test_a_long_chain():
    def f(x):
        s = x.sum()
        if s > 9: return x + 9
        if s > 8: return x + 8
        if s > 7: return x + 7
        if s > 6: return x + 6
        if s > 5: return x + 5
        if s > 4: return x + 4
        if s > 3: return x + 3
        if s > 2: return x + 2
        if s > 1: return x + 1
        if s > 0: return x * 2
        if s > -1: return x * 3
        if s > -2: return x * 4
        return x
    check(f, [[float(k), 0.0] for k in range(-3, 11)])


def test_elif_chain_of_many():
    def f(x):
        s = x.sum()
        if s > 5: y = 1.0
        elif s > 4: y = 2.0
        elif s > 3: y = 3.0
        elif s > 2: y = 4.0
        elif s > 1: y = 5.0
        elif s > 0: y = 6.0
        elif s > -1: y = 7.0
        else: y = 8.0
        return x * y, y
    check(f, [[float(k), 0.5] for k in range(-3, 7)])


def test_conditional_expressions_and_logic():
    def f(x):
        a = x * 2 if x[0] > 0 else x * 3 if x[1] > 0 else -x
        b = x.sum() > 0 and x[0] > 0
        c = x[0] > 100 or x[1] < 0 or x[2] > 2.5
        d = not (x.sum() > 0)
        e = 0 < x.sum() < 5
        g = -3.0 < x[0] <= x[1] < 2.0
        return a + (1 if b else 2) + (10 if c else 20) + (100 if d else 200) + (1000 if e else 2000) + (5 if g else 6)
    check(f)


def test_the_second_operand_is_not_looked_at():
    def f(x):
        calls = []
        def ask(v):
            calls.append(1)
            return v
        y = x + 1 if x[0] > 0 and ask(x[1] > 0) else x
        return y, len(calls)
    check(f, fullgraph=False)


def test_assignment_expressions():
    def f(x):
        if (s := x.sum()) > 1:
            return x * s
        return x - s
    check(f)


def test_match_on_values():
    def f(x, k):
        match k:
            case 1:
                y = x + 1
            case 2 | 3:
                y = x + 2
            case n if x.sum() > 0:
                y = x * n
            case _:
                y = -x
        return y
    check(f, [(v, k) for v in VECTORS for k in (1, 2, 3, 4)])


def test_match_on_a_tensor():
    def f(x):
        match x[0]:
            case 1.0:
                return x + 1
            case -1.0 | 4.0:
                return x + 2
        return x
    check(f)


def test_match_on_structure_stays_pythons():
    def f(x, what):
        match what:
            case (a, b) if x.sum() > 100:
                return x
            case (a, b):
                y = x + a if x.sum() > 0 else x + b
            case {"k": v}:
                y = x * v
            case _:
                y = x
        return y
    check(f, [([1.0], {"k": 3.0}), ([1.0], 5)])
    check(f, [([1.0], (1.0, 2.0)), ([-1.0], (1.0, 2.0))], fullgraph=False)


def test_numbers_chosen_by_a_tensor_are_pythons():
    def f(x):
        k, s, flag = (1, 0.1, True) if x.sum() > 0 else (2, 0.2, False)
        y = tn.asarray(np.ones(3)) * s
        return x * k, y, k, s, flag, k + 1, k / 2, k // 2, -k, k == 1, k * s, s ** 2, k % 2, round(s), int(s * 10)
    check(f)


def test_a_number_or_another_kind():
    def f(x):
        k = 1 if x.sum() > 0 else 2.5
        return x * k, k
    check(f)


def test_a_tensor_or_a_number():
    def f(x):
        s = x.max() if x.sum() > 0 else 0.0
        return x + s, s
    check(f)


def test_none_or_a_tensor():
    def f(x):
        found = x * 2 if x[0] > 0 else None
        if found is None:
            y = x - 1
        else:
            y = found + 1
        return y, found
    check(f)


def test_words_chosen_by_a_tensor():
    def f(x):
        word = "up" if x.sum() > 0 else "down"
        y = x * 2 if word == "up" else x
        return y, word
    check(f)


def test_shapes_chosen_by_a_tensor():
    def f(x):
        return x[:2] if x.sum() > 0 else x
    check(f)


def test_containers_chosen_by_a_tensor():
    def f(x):
        pair = (x, [x + 1, {"k": x * 2, "n": 3}]) if x.sum() > 0 else (-x, [x, {"k": x, "n": 4}])
        return pair, pair[1][1]["k"] + pair[1][1]["n"]
    check(f)


def test_functions_chosen_by_a_tensor():
    def f(x):
        act = tn.sin if x.sum() > 0 else tn.cos
        return act(x)
    check(f)


def test_operators_first_met_in_a_branch_stay_as_they_are(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import tenon as tn

@tn.jit
def f(x):
    act = tn.sin if x.sum() > 0 else tn.cos
    return act(x)

before = set(vars(tn.sin))
assert f(tn.zeros(2)).tolist() == [1, 1] and tn.jit(lambda x: tn.sin(x) * 2)(tn.zeros(2)).tolist() == [0, 0]
assert set(vars(tn.sin)) == before
""")
    subprocess.run([sys.executable, program], check=True)


def test_a_branch_only_binds_on_one_side():
    def f(x):
        if x.sum() > 0:
            extra = x * 2
        y = x
        if x.sum() > 0:
            y = extra
        return y
    check(f)


def test_reading_what_is_unbound_for_some_data():
    def f(x):
        if x.sum() > 0:
            extra = x * 2
        return extra
    check(f)


def test_a_deleted_variable():
    def f(x):
        y = x + 1
        if x.sum() > 0:
            del y
        else:
            y = x * 3
        try:
            return y
        except NameError:
            return x
    check(f)


@pytest.mark.parametrize("size", [0, 1, 3])
def test_sizes(size):
    def f(x):
        if x.sum() >= 0:
            x = x + 1
        return x
    check(f, [[1.0] * size, [-1.0] * size])


def test_double_precision_and_nan():
    def f(x):
        return x * 0.1 if x.sum() > 0 else x * 0.2
    jitted = tn.jit(f, fullgraph=True)
    for value in (1.0, -1.0, np.nan, np.inf, -np.inf):
        x = tn.asarray(np.array([value, 1 / 3]))
        np.testing.assert_array_equal(jitted(x).numpy(), f(x).numpy())


def test_a_condition_of_many_elements_is_ambiguous():
    def f(x):
        return x if x > 0 else -x
    with pytest.raises(Exception, match="ambiguous"):
        tn.jit(f)(tn.tensor([1.0, 2.0]))


def test_symbolic_sizes():
    def f(x):
        if x.sum() > 0:
            x = x * 2
        return x.sum(), x
    check(f, [[1.0] * n for n in (3, 4, 5, 1, 7)] + [[-1.0] * n for n in (3, 6, 2)])
