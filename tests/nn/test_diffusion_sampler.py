"""`tn.models.sample` goes back from noise to the picture that the model sees in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.errors import ArgumentError

PICTURE = tn.tensor(np.linspace(-0.9, 0.9, 8, dtype=np.float32).reshape(1, 2, 2, 2))


@pytest.mark.parametrize("kind", ["epsilon", "sample", "v_prediction"])
@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_a_model_that_knows_the_picture_draws_it(kind: str, eta: float) -> None:
    schedule = tn.models.NoiseSchedule(100, prediction_type=kind, beta_schedule="scaled_linear")
    shares = tn.tensor(schedule.kept())

    def knows(x: Any, time: Any) -> Any:
        clear, hidden = tn.sqrt(shares[time]), tn.sqrt(1 - shares[time])
        noise = (x - clear * PICTURE) / hidden
        return {"epsilon": noise, "sample": PICTURE, "v_prediction": clear * noise - hidden * PICTURE}[kind]
    drawn = tn.models.sample(knows, tn.ones(1, 2, 2, 2), 4, schedule, eta)
    np.testing.assert_allclose(drawn.numpy(), PICTURE.numpy(), atol=1e-5)


def test_what_no_schedule_has() -> None:
    with pytest.raises(ArgumentError, match="2000 steps through 1000 times"):
        tn.models.sample(lambda x, time: x, tn.ones(1), 2000)
    with pytest.raises(ArgumentError, match="prediction_type='x'"):
        tn.models.sample(lambda x, time: x, tn.ones(1), 2, tn.models.NoiseSchedule(prediction_type="x"))
    with pytest.raises(ArgumentError, match="beta_schedule='x'"):
        tn.models.sample(lambda x, time: x, tn.ones(1), 2, tn.models.NoiseSchedule(beta_schedule="x"))
    with pytest.raises(ArgumentError, match="its blocks are CrossAttnDownBlock2D"):
        tn.models.UNet(block_out_channels=(32,), down_block_types=("CrossAttnDownBlock2D",), up_block_types=("UpBlock2D",))
