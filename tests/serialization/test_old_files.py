"""Files of every format that there was are read, and give what they gave."""

from pathlib import Path

import numpy as np
import pytest

import tenon as tn
from serialization.elsewhere import tensors
from tenon.serialization.write_model import FORMAT

FILES = Path(__file__).parent / "files"
MODELS = sorted(FILES.glob("format_*/*.model"))


def test_files_of_every_format_are_kept() -> None:
    assert {path.parent.name for path in MODELS} == {f"format_{k}" for k in range(1, FORMAT + 1)}


@pytest.mark.parametrize("path", MODELS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_file_gives_what_it_gave(path: Path) -> None:
    model, args = tn.load(path), tn.load(path.with_suffix(".args"))
    for before in tn.load(path.with_suffix(".results")):
        now = tensors(model(*args))
        assert now.keys() == before.keys()
        for key, x in before.items():
            if isinstance(x, str):
                assert now[key] == x
            else:
                assert now[key].type == x.type
                np.testing.assert_allclose(now[key].detach().numpy(), x.numpy(), rtol=1e-5, atol=1e-6)
