"""`tn.models.UNet` and `sample` give what diffusers gives with the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenon as tn

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")
SMALL = {"sample_size": 16, "block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4,
         "down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}


@pytest.mark.parametrize(("fields", "schedule"), [
    ({"attention_head_dim": 4}, {}),
    ({"attention_head_dim": None, "downsample_padding": 0, "flip_sin_to_cos": False, "freq_shift": 1, "norm_eps": 1e-6},
     {"beta_schedule": "scaled_linear", "prediction_type": "v_prediction", "clip_sample": False})])
def test_unet_and_sampler(fields: dict[str, Any], schedule: dict[str, Any]) -> None:
    torch.manual_seed(0)
    theirs = diffusers.UNet2DModel(**SMALL, **fields).eval()
    ours = tn.models.UNet(dict(theirs.config)).eval()
    ours.load_state_dict({name: x.numpy() for name, x in theirs.state_dict().items()})
    x, times = torch.randn(2, 3, 16, 16), torch.tensor([3, 700])
    with torch.no_grad():
        expected = theirs(x, times).sample
        found = ours(tn.tensor(x.numpy()), tn.tensor(times.numpy()))
        np.testing.assert_allclose(found.detach().numpy(), expected.numpy(), atol=1e-5)
        steps = diffusers.DDIMScheduler(**schedule)
        steps.set_timesteps(5)
        drawn = x
        for time in steps.timesteps:
            drawn = steps.step(theirs(drawn, time).sample, time, drawn).prev_sample
    found = tn.models.sample(ours, tn.tensor(x.numpy()), 5, tn.models.NoiseSchedule(**schedule))
    np.testing.assert_allclose(found.numpy(), drawn.numpy(), atol=1e-4)
