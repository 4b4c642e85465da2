"""Tests of machine code that is run on one thread, and on several."""

from __future__ import annotations

from typing import Any

import pytest

from tenon.runtime.thread_pool import set_num_threads


@pytest.fixture(params=[1, 3])
def threads(request: Any) -> Any:
    """The test is run on so many threads."""
    set_num_threads(request.param)
    return request.param
