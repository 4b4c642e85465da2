"""TENON_* variables: each is understood, and what has no meaning is refused by name."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tenon.config import Config, ConfigError, read_config, usable_cores


def test_an_empty_environment_gives_the_defaults():
    assert read_config({}) == Config("cpu", usable_cores(), 512, Path.home() / ".cache" / "tenon", frozenset())
    assert read_config({"TENON_THREADS": "", "TENON_SHOW": " ", "TENON_CACHE": ""}) == read_config({})


def test_every_variable_is_read():
    environ = {"TENON_BACKEND": "reference", "TENON_THREADS": "3", "TENON_VECTORS": "256",
               "TENON_CACHE": "/x/y", "TENON_SHOW": "graph, time,", "TENON_CHECK": "bounds,passes"}
    assert read_config(environ) == Config("reference", 3, 256, Path("/x/y"), frozenset({"graph", "time"}),
                                           frozenset({"bounds", "passes"}))


@pytest.mark.parametrize("word", ["off", "0", "No", "none", "FALSE", " off "])
def test_the_cache_can_be_turned_off(word):
    assert read_config({"TENON_CACHE": word}).cache_dir is None


def test_a_directory_may_have_such_a_name():
    assert read_config({"TENON_CACHE": "./0"}).cache_dir == Path.cwd() / "0"


@pytest.mark.parametrize(
    ("variable", "value"),
    [("TENON_BACKEND", "cpu,gpu")]
    + [("TENON_THREADS", text) for text in ("0", "-1", "two", "1.5", "²", "9" * 5000)]
    + [("TENON_VECTORS", text) for text in ("64", "avx2")]
    + [("TENON_CACHE", text) for text in ("1", "on", "True")]
    + [("TENON_SHOW", "graph,graphs"), ("TENON_CHECK", "bound")],
)
def test_a_meaningless_value_is_refused_by_name(variable, value):
    with pytest.raises(ConfigError, match=f"^{variable}: "):
        read_config({variable: value})


def test_no_more_cores_are_counted_than_the_process_may_run_on():
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


@pytest.mark.parametrize(("variable", "value"), [("TENON_THREADS", "two"), ("TENON_BACKEND", "gpu")])
def test_a_jitted_function_tells_and_does_not_run_without_its_program(variable, value):
    program = "import tenon as tn; tn.jit(lambda x: x * 2)(tn.ones(3))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), variable: value})
    assert done.returncode == 1 and f"ConfigError: {variable}: " in done.stderr, done.stderr
