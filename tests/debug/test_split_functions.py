"""`watch`, `check` and `bisect` look into the pieces of a function that one graph cannot hold."""

import numpy as np
import pytest

import tenon as tn
from tenon import nn
from tenon.debug import BadNumber
from tenon.errors import ArgumentError, CaptureError
from tenon.observe import subscribe


def split_function():
    tn.manual_seed(0)
    net, means = nn.Linear(300, 200), []

    @tn.jit
    def f(x, shift):
        hidden = tn.relu(net(x))
        means.append(np.asarray(hidden).mean())
        shifted = hidden + shift
        scaled = tn.log(shifted)
        return scaled.sum()
    return f, net, means


X = tn.ones((512, 300))


def test_values_of_all_pieces_are_watched_and_nothing_is_captured_for_it():
    f, net, means = split_function()
    for _ in range(12):         # fast paths are there by now
        plain = float(f(X, 1.0))
    heard = []
    stop = subscribe(lambda event: heard.append(event.name))
    with tn.debug.watch(f, "hidden", "scaled", "net.*") as w:
        again = float(f(X, 1.0))
    stop()
    assert again == plain and len(means) == 13
    assert "captured" not in heard
    hidden = np.maximum(X.numpy() @ net.weight.numpy().T + net.bias.numpy(), 0)
    assert np.allclose(w["hidden"].value, hidden, atol=1e-5)
    assert np.allclose(w["scaled"].value, np.log(hidden + 1), atol=1e-5)
    assert np.array_equal(w["net.weight"].value, net.weight.numpy())
    assert len(w.calls) == 2 and "hidden" in str(w)
    with pytest.raises(ArgumentError, match=r"there are .*hidden"):
        _ = w["hiden"]
    assert f._around == () and all(piece._around == () for piece in f.with_pieces())
    assert float(f(X, 1.0)) == plain


def test_a_function_that_is_split_while_it_is_watched():
    f, _, _ = split_function()
    with tn.debug.watch(f, "hidden", "scaled", keep=2) as w:
        for shift in (1.0, 1.0, 2.0):
            f(X, shift)
    assert np.allclose(w["scaled"].value, np.log(w["hidden"].value + 2), atol=1e-5)
    assert all(piece._around == () for piece in f.with_pieces())


def test_lines_of_a_piece():
    f, _, _ = split_function()
    for _ in range(3):
        f(X, 1.0)
    here = f.function.__code__.co_firstlineno
    with tn.debug.watch(f, line=f"test_split_functions.py:{here + 5}") as w:
        f(X, 1.0)
    assert [value.name.partition(" ")[0] for value in w.lines()] == ["log"]


def test_a_bad_number_in_a_later_piece_ends_the_call():
    f, _, means = split_function()
    f(X, 1.0)
    with tn.debug.check(f), pytest.raises(BadNumber, match="log: makes a") as caught:
        f(X, -1.0)
    assert "scaled = tn.log(shifted)" in str(caught.value) and "hidden, which the call is given" in str(caught.value)
    assert len(means) == 2
    assert np.isnan(float(f(X, -1.0)))
    with tn.debug.check(f):
        f(X, 1.0)


def test_each_piece_is_compared():
    f, _, means = split_function()
    fine = tn.debug.bisect(f, X, 1.0)
    assert fine.stage == "" and fine.kernels >= 2 and len(means) == 1
    from tenon.graph.build import copy, rebuild

    @tn.graph_pass
    def forgets_logarithms(graph):
        return rebuild(graph, lambda node, given: given[0] * 1.0 if node.op is tn.log else copy(node, given))
    try:
        broken, _, _ = split_function()
        found = tn.debug.bisect(broken, X, 1.0)
        assert found.stage == "pass" and found.name == "forgets_logarithms"
    finally:
        tn.remove_pass("forgets_logarithms")


def test_what_is_left_to_python_is_said():
    little = tn.jit(lambda x: x * float(np.asarray(x).sum()))
    with pytest.raises(CaptureError):
        tn.debug.bisect(little, tn.ones(2))
