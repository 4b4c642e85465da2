"""Operators of matrices whose results are as large as the smaller side: in one graph whatever the sizes."""

import numpy as np
import pytest

import tenon as tn

OPERATORS = {
    "svdvals": tn.linalg.svdvals, "svd": lambda x: tn.linalg.svd(x)[1], "qr": lambda x: tn.linalg.qr(x)[1],
    "lu": lambda x: tn.linalg.lu(x)[1:], "rank": tn.linalg.matrix_rank, "diag": lambda x: tn.diag(x, 1),
    "lower": lambda x: tn.diagonal(x, -1), "norm": lambda x: tn.linalg.matrix_norm(x, 2),
    "gradient": tn.grad(lambda x: tn.linalg.svdvals(x).sum()), "vmap": lambda x: tn.vmap(tn.linalg.svdvals)(x[None]),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_the_smaller_side_is_told_when_both_change(name):
    operator = OPERATORS[name]
    jitted = tn.jit(operator, fullgraph=True)
    for shape in ((3, 5), (4, 6), (6, 4), (5, 5), (1, 3)):
        x = tn.tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float64))
        for found, expected in zip(tn.tree.leaves(jitted(x)), tn.tree.leaves(operator(x)), strict=True):
            tn.testing.assert_close(found, expected)
