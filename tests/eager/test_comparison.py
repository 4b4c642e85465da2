"""Comparisons of tensors with what is none: as in PyTorch, nothing of that is equal to a tensor."""

import pytest

import tenon as tn
from tenon.errors import DTypeError


@pytest.mark.parametrize("other", [None, "text"])
@pytest.mark.parametrize("run", [lambda f: f, tn.jit], ids=["eager", "jit"])
def test_nothing_else_is_equal_to_a_tensor(run, other):
    x = tn.ones(2)
    assert run(lambda x: (x == other, x != other, other == x, other in (x,)))(x) == (False, True, False, False)


def test_a_list_is_not_compared_in_silence():
    with pytest.raises(DTypeError, match="not list"):
        _ = tn.ones(2) == [1, 1]
