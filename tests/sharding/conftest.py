"""What tests of shardings share."""

from functools import partial

import pytest

from tenon import pipeline
from tenon.runtime.spmd_program import SpmdProgram


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of a rank are those of the reference backend: nothing is compiled to machine code."""
    monkeypatch.setattr(pipeline, "always_check", False)
    compiled = partial(pipeline.compile, backend="reference")
    monkeypatch.setattr(SpmdProgram, "compile", property(lambda self: compiled, lambda self, value: None), raising=False)
