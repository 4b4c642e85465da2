"""The main job, small: train on real digits, save, and let a fresh process load and read the held-out images."""

import numpy as np

from tenon.demos import digits


def test_digits_from_training_to_a_fresh_process(tmp_path, capfd):
    accuracy = digits.run(tmp_path, epochs=3)
    printed = capfd.readouterr().out
    assert accuracy > 0.85
    assert f"{accuracy:.2%} of 360 held-out images are read right" in printed      # said by the fresh process
    assert (tmp_path / "digits.safetensors").stat().st_size > 4 * 100_000
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")
    assert "kernels" in printed and "peak memory planned" in printed and "eager" in printed


def test_pictures_in_characters():
    picture = np.zeros((1, 2, 2))
    picture[0, 0, 1], picture[0, 1, 0] = 1.0, 0.5
    assert digits.in_terminal(picture, np.array([7])).splitlines()[1:] == ["  ██", "▒▒  "]
