"""`tn.debug.stop`: pdb at the user's line, tensors as values, and right results; recompiles are told and warned of."""

import io
import pdb  # noqa: T100
import warnings
from pathlib import Path

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.debug.breakpoints import Debugger
from tenon.errors import ArgumentError, RecompileWarning
from tenon.observe import subscribe


def session(commands, kind=pdb.Pdb):
    said = io.StringIO()
    return said, lambda: kind(stdin=io.StringIO(commands), stdout=said, nosigint=True, readrc=False)


def made():
    net = nn.Linear(4, 2)
    optimizer = optim.SGD(net.parameters(), lr=0.1)

    @tn.jit
    def step(x):
        optimizer.zero_grad()
        hidden = tn.tanh(net(x))
        loss = (hidden * hidden).sum()
        loss.backward()
        optimizer.step()
        return loss
    return net, step


LINE = "test_stop.py:31"        # that of `loss`


def test_the_line_is_named_rightly():
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert "loss = (hidden" in lines[int(LINE.rpartition(":")[2]) - 1]


def test_a_call_stops_at_a_line_with_real_values_and_computes_what_it_would_have():
    (net, step), (other, plain) = made(), made()
    other.load_state_dict(net.state_dict())
    x = tn.randn(3, 4)
    for k in range(4):
        said, debugger = session("p hidden.shape\np float(hidden.sum())\nc\n")
        with tn.debug.stop(step, line=LINE, debugger=debugger):
            stopped = step(x) if k == 2 else None
        stopped = step(x) if stopped is None else stopped
        np.testing.assert_allclose(stopped.numpy(), plain(x).numpy(), rtol=1e-6)
        assert ("(3, 2)" in said.getvalue()) is (k == 2)
    np.testing.assert_allclose(net.weight.numpy(), other.weight.numpy(), rtol=1e-5)


def test_nothing_is_captured_anew_by_it():
    _, step = made()
    x = tn.randn(3, 4)
    for _ in range(3):
        step(x)
    heard = []
    stop = subscribe(lambda event: heard.append(event.name))
    said, debugger = session("c\n" * 3)
    with tn.debug.stop(step, debugger=debugger):
        step(x)
    step(x)
    stop()
    assert "capture" not in heard and "test_stop.py" in said.getvalue()


def test_a_condition_is_asked_with_the_variables():
    _, step = made()
    said, debugger = session("p 'here', float(loss) > 0\nc\n")
    with tn.debug.stop(step, when=lambda v: v["loss"] > 1e9, debugger=debugger):
        step(tn.ones(3, 4))
    assert said.getvalue() == ""
    with tn.debug.stop(step, when=lambda v: v["loss"] > 1e-9, debugger=debugger):
        step(tn.ones(3, 4))
    assert "('here', True)" in said.getvalue()


def test_where_shows_frames_of_the_program_alone():
    _, step = made()
    said, debugger = session("w\nc\n", Debugger)
    with tn.debug.stop(step, line=LINE, debugger=debugger):
        step(tn.ones(3, 4))
    assert "test_where_shows_frames" in said.getvalue() and "tenon/jit.py" not in said.getvalue()


def test_a_line_that_is_none_is_refused():
    _, step = made()
    with pytest.raises(ArgumentError, match="FILE:NUMBER"), tn.debug.stop(step, line="train.py"):
        pass


def test_breakpoint_in_a_jitted_function_stops_there(monkeypatch):
    seen = []
    monkeypatch.setattr("sys.breakpointhook", lambda: seen.append("stopped"))

    @tn.jit
    def f(x):
        y = x * 2
        breakpoint()  # noqa: T100
        return y + 1
    assert [f(tn.ones(2)).tolist() for _ in range(3)] == [[3, 3]] * 3 and seen == ["stopped"] * 3


# ---------------------------------------------------------------- recompiles

def test_each_recompile_is_told_with_both_values_and_the_ninth_call_that_fits_none_warns():
    @tn.jit
    def f(x, word):
        return x * sum(1 for _ in range(len(word)))      # a loop of Python's, turn by turn
    told = []
    stop = subscribe(lambda event: told.append(event.fields["why"]) if event.name == "recompiled" else None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RecompileWarning)
        for k in range(14):
            f(tn.ones(2), "w" * k)
    stop()
    assert told[0] == "word is 'w', and was ''" and len(told) == 7      # after six, a word is awaited twice
    (warning,) = [w for w in caught if w.category is RecompileWarning]
    assert "9 calls of f fitted no capture of it" in str(warning.message) and "hint: " in str(warning.message)
    assert warning.filename == __file__


def test_the_page_of_an_explanation_has_every_capture_and_why(tmp_path):
    f = tn.jit(lambda x, word: x)
    for word in ("<a>", "b"):
        f(tn.ones(2), word)
    page = tn.explain(f).to_html(tmp_path / "f.html")
    assert (tmp_path / "f.html").read_text(encoding="utf-8") == page
    assert "&lt;a&gt;" in page and "<a>" not in page and "the first call" in page and "word is" in page
