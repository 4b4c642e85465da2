"""A function -> the same one, for a capture that converts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.capture.convert import builtin_overrides, output_calls
from tenon.capture.convert.callees import callee, set_up
from tenon.capture.convert.conversion_runtime import RUNTIME
from tenon.capture.convert.rewrite import rewritten

set_up(rewritten, RUNTIME)
BUILTINS = builtin_overrides.REPLACED
OUTPUT_CALLS = output_calls.__name__      # which adds to them


def convert(function: Callable[..., Any]) -> Callable[..., Any]:
    """What to call in the place of a user's function so that control flow on tensors is captured."""
    found: Callable[..., Any] = callee(function)
    return found
