"""Every graph is verified after every pass in all tests, and the same random programs are tried in every run.

`TENON_EXPLORE=1 pytest ...` tries new ones instead: what it finds is mended, and kept as a test of its own.
"""

import os

from hypothesis import settings

from tenon import pipeline

pipeline.always_check = True

settings.register_profile("same", derandomize=True, database=None)
settings.register_profile("explore", derandomize=False)
settings.load_profile("explore" if os.environ.get("TENON_EXPLORE") else "same")
