"""Every graph is verified after every pass in all tests, and the same random programs are tried in every run.

`TENON_EXPLORE=1 pytest ...` tries new ones instead: what it finds is mended, and kept as a test of its own.
"""

import os

from hypothesis import HealthCheck, settings

from tenon import pipeline

pipeline.always_check = True

TIMELESS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}      # a busy machine fails no test
settings.register_profile("same", derandomize=True, database=None, **TIMELESS)
settings.register_profile("explore", derandomize=False, **TIMELESS)
settings.load_profile("explore" if os.environ.get("TENON_EXPLORE") else "same")
