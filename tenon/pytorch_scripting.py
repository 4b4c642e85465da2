"""What PyTorch's users write of `torch.jit`, set on `tn.jit`: `script` and `trace` compile, marks mean nothing.

    @torch.jit.script
    def f(x): ...           # is @tn.jit
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def script(obj: Any, *_: Any, **__: Any) -> Any:
    """`tn.compile`: of a function a compiled function, of a module a compiled module; a class is itself."""
    return obj if isinstance(obj, type) else import_module("tenon.pytorch_functions").compile(obj)


def trace(func: Any, example_inputs: Any = None, *_: Any, **__: Any) -> Any:
    """The same: what branches on values does so in the compiled function, too."""
    return script(func)


def marked(function: Any = None, **_: Any) -> Any:
    """The function itself: nothing is compiled but what is called."""
    return function if callable(function) else marked


def is_scripting() -> bool:
    """False: the function runs as Python, and is captured."""
    return False


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value."""
    return the_value


SCRIPTING: dict[str, Callable[..., Any]] = {
    "script": script, "trace": trace, "script_if_tracing": script, "ignore": marked, "export": marked, "unused": marked,
    "is_scripting": is_scripting, "is_tracing": is_scripting, "annotate": annotate}
