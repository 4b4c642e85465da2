"""A result of a remembered call that nobody used sends nothing back: not zeros, which would make NaN of infinities."""

import numpy as np
import pytest

import tenon as tn


@pytest.mark.parametrize("transform", [True, False])
def test_the_gate_of_the_hidden_state_where_only_the_cells_are_used(transform: bool) -> None:
    x, h, weights = np.ones((2, 3)), np.full((2, 4), np.nan), np.ones((16, 4))

    def loss(w: tn.Tensor) -> tn.Tensor:
        return (tn.lstm_cell(tn.tensor(x), tn.tensor(h), tn.tensor(h), w, tn.tensor(weights))[1] ** 2).sum()

    def gradient() -> tn.Tensor:
        w = tn.tensor(np.ones((16, 3)), requires_grad=not transform)
        if transform:
            return tn.grad(loss)(w)
        loss(w).backward()
        return w.grad
    for _ in range(5):
        found = gradient().numpy()
        assert np.isnan(found[:12]).all()
        assert not found[12:].any()
