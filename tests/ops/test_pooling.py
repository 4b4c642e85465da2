"""The largest element of a window, where all are as small as its padding."""

import numpy as np
import pytest

import tenon as tn
from tenon.ops.pooling import lowest_of


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8", "int32"])
@pytest.mark.parametrize("run", [lambda f: f, tn.jit], ids=["eager", "jit"])
@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"),
                         [((3,), 1, 1, 1), ((3, 3), 2, 1, 1), ((2, 3), (1, 2), (1, 0), (2, 1)), ((1, 5), 1, (0, 2), 1)])
def test_padding_never_wins(run, dtype, kernel, stride, padding, dilation):
    x = tn.tensor(np.full((1, 2, *(5, 6)[-len(kernel):]), lowest_of(np.zeros(0, "float32" if dtype[0] in "fb" else dtype))),
                  dtype=dtype)
    pool = tn.max_pool1d if len(kernel) == 1 else tn.max_pool2d
    largest, at = run(lambda x: pool(x, kernel, stride, padding, dilation, return_indices=True))(x)
    count = int(np.prod(x.shape[2:]))
    assert ((at >= 0) & (at < count)).all() and (largest == x[0, 0].max()).all()
    seen = [tuple(row) for row in np.sort(at.numpy().reshape(2, -1), axis=1)]
    assert seen[0] == seen[1] and seen[0][0] == 0


@pytest.mark.parametrize("run", [lambda f: f, tn.jit], ids=["eager", "jit"])
def test_the_gradient_of_minus_infinity_at_the_border_is_not_lost(run):
    def gradient(x, g):
        return tn.vjp(lambda x: tn.max_pool1d(x, 3, 1, 1), x)[1](g)
    found = run(gradient)(tn.full((1, 1, 4), -float("inf")), tn.tensor([[[1.0, 2.0, 4.0, 8.0]]]))
    assert tn.tree.leaves(found)[0].tolist() == [[[3.0, 4.0, 8.0, 0.0]]]
