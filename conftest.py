"""Options and doctest names shared by every test below this folder."""

from importlib.util import find_spec

import numpy as np
import pytest

OPTIONAL = {"torch": "tenon/torch/*", "einops": "tenon/interop/einops_backend.py"}      # whose doctests need them
collect_ignore_glob = [files for module, files in OPTIONAL.items() if not find_spec(module)]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite expected text: tests/golden/*.test, docs")


@pytest.fixture(autouse=True)
def doctest_names(request: pytest.FixtureRequest, doctest_namespace: dict[str, object]) -> None:
    """Doctests know `tn`, `nn`, `optim` and `np` without importing them."""
    if isinstance(request.node, pytest.DoctestItem):
        import tenon as tn  # not above: a broken package should fail its tests, not pytest's start

        doctest_namespace.update(tn=tn, np=np, nn=tn.nn, optim=tn.optim)
