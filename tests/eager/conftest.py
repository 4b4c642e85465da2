"""What tests of eager calls share."""

import pytest

from tenon.backends.cpu import objects
from tenon.eager import descent, native, recipes
from tenon.eager.quick import PRODUCT, SHORTS
from tenon.eager.remembered import ready_calls
from tenon.graph.op import Op


@pytest.fixture
def machine_code():
    """Machine code for the operators, from now on; functions in Python afterwards."""
    if not objects.READABLE:
        pytest.skip("this Python's objects are not read")
    in_python = Op.__call__
    native.give_native(SHORTS, PRODUCT)
    yield
    native.give_python(SHORTS, PRODUCT)
    Op.__call__ = in_python
    vars(descent.ways).update(vars(descent.Ways()))
    recipes.natives.clear()
    ready_calls.known.clear()
