"""Files that a captured function can find are never read, wrapped or closed by the capture: they may be anybody's."""

import gc
import io
import logging
import sys

import pytest

import tenon as tn
from capture.both import vector


class Report(io.TextIOWrapper):
    """A file of a class of the user's own, as pytest's are."""


FILES = {"text": lambda: Report(io.BytesIO()), "lines": lambda: type("Lines", (io.StringIO,), {})(),
         "bytes": lambda: io.BufferedRandom(io.BytesIO()), "plain": lambda: io.TextIOWrapper(io.BytesIO())}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_a_handler_writes_to_stays_open(kind):
    file, logger = FILES[kind](), logging.getLogger(f"capture-files-{kind}")
    logger.addHandler(logging.StreamHandler(file))
    logger.propagate = False
    f = tn.jit(lambda x: (logger.warning("called"), x * 2.0)[1])
    for _ in range(3):
        assert f(vector(1.0)).tolist() == [2.0]
        gc.collect()
        assert not file.closed


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_named_stays_open_and_where_it_is(kind):
    file = FILES[kind]()
    f = tn.jit(lambda x: x * 2.0 if file.closed else x * 3.0)
    assert f(vector(1.0)).tolist() == [3.0]
    gc.collect()
    assert not file.closed and file.tell() == 0


def test_standard_streams_are_those_from_before(capsys):
    before = sys.stdout, sys.stderr
    logger = logging.getLogger("capture-files-stderr")
    logger.addHandler(handler := logging.StreamHandler())
    f = tn.jit(lambda x: (logger.warning("called"), print("called"), x * 2.0)[2])
    for _ in range(2):
        f(vector(1.0))
    assert before == (sys.stdout, sys.stderr) and handler.stream is sys.stderr
    assert capsys.readouterr() == ("called\n" * 2, "called\n" * 2)
