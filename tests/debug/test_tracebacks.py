"""Uncaught errors of Tenon end at the user's line; caught ones, and those of others, are whole."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import threading
import tenon as tn

def model(x, w):
    return x @ w

@tn.jit
def step(x, w):
    return model(x, w)

def call():
    step(tn.ones(2, 3), tn.ones(2, 3))

{run}
"""


def printed(tmp_path, run, **environment):
    file = tmp_path / "train.py"
    file.write_text(PROGRAM.format(run=run), encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": os.getcwd(), **environment})
    return done.stderr


@pytest.mark.parametrize("run", ["call()", "t = threading.Thread(target=call); t.start(); t.join()"])
def test_an_uncaught_error_ends_at_the_users_line(tmp_path, run):
    said = printed(tmp_path, run)
    assert "tenon/" not in said.replace("tenon.errors", "") and "During handling" not in said
    assert "in model\n    return x @ w" in said and "hint: did you mean x @ w.mT ?" in said
    assert said.count("Traceback") == 1


def test_tenons_frames_are_there_where_they_are_asked_for(tmp_path):
    said = printed(tmp_path, "call()", TENON_TRACEBACK="full")
    assert "tenon/capture/jitted.py" in said and "in model\n    return x @ w" in said


def test_a_caught_error_is_whole_and_others_are_left_alone(tmp_path):
    said = printed(tmp_path, "import traceback\ntry:\n    call()\nexcept Exception:\n    traceback.print_exc()")
    assert "tenon/capture/jitted.py" in said
    said = printed(tmp_path, "tn.jit(lambda: None)(*[1])")
    assert "TypeError" in said and "tenon/capture/jitted.py" in said


def test_another_word_is_refused(tmp_path):
    assert "'long' is not one of short, full" in printed(tmp_path, "call()", TENON_TRACEBACK="long")
