"""Every graph is verified after every pass in all tests, and the same random programs are tried in every run.

`TENON_EXPLORE=1 pytest ...` tries new ones instead: what it finds is mended, and kept as a test of its own.  The
generators of NumPy that a module of tests has begin anew with each test, so that what it sees does not depend on which
ran before it.
"""

import os
import sys
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings

from tenon import pipeline

pipeline.always_check = True

TIMELESS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}      # a busy machine fails no test
settings.register_profile("same", derandomize=True, database=None, **TIMELESS)
settings.register_profile("explore", derandomize=False, **TIMELESS)
settings.load_profile("explore" if os.environ.get("TENON_EXPLORE") else "same")

HERE = str(Path(__file__).parent)
begins = []             # (the bits of a generator, their state when all tests were collected)


def pytest_collection_finish():
    for module in list(sys.modules.values()):
        if str(getattr(module, "__file__", "")).startswith(HERE):
            begins.extend((value.bit_generator, value.bit_generator.state) for value in vars(module).values()
                          if isinstance(value, np.random.Generator))


def pytest_runtest_setup():
    for bits, state in begins:
        bits.state = state
