"""Programs of many kinds are saved, and go on in another process, without their source, with the same bits."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenon as tn
from serialization.elsewhere import tensors
from serialization.programs import PROGRAMS, Pair, State

CALLS = 3
HERE = Path(__file__).parent


def portable(x: Any) -> Any:
    if isinstance(x, Pair):
        return {"Pair": list(x)}
    return {"State": vars(x)} if isinstance(x, State) else x


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of every program what it gives here, call by call, and what it gives elsewhere; or why it was not saved."""
    folder = tmp_path_factory.mktemp("models")
    found: dict[str, Any] = {}
    for name, make in PROGRAMS.items():
        tn.manual_seed(3)
        function, args, options = make()
        tn.save(folder / f"{name}.model", function, args, **options)
        tn.save([portable(x) for x in args], folder / f"{name}.args")
        jitted = function if isinstance(function, tn.jit(lambda: 0).__class__) or hasattr(function, "__func__") \
            else tn.jit(function)
        found[name] = [tensors(jitted(*args)) for _ in range(CALLS)]
    subprocess.run([sys.executable, str(HERE / "elsewhere.py"), str(folder), str(CALLS)], check=True,
                   env=os.environ | {"PYTHONPATH": str(HERE.parents[1])})
    return {name: (here, tn.load(folder / f"{name}.out")) for name, here in found.items()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_goes_on_elsewhere_with_the_same_bits(outcomes: dict[str, Any], name: str) -> None:
    here, there = outcomes[name]
    dynamic = name in ("dynamic_batch", "attention_with_dynamic_length")    # another program than for one size
    for call, (ours, theirs) in enumerate(zip(here, there, strict=True)):
        assert ours.keys() == theirs.keys()
        for key, x in ours.items():
            if isinstance(x, str):
                assert theirs[key] == x
                continue
            assert theirs[key].type == x.type
            if dynamic:
                np.testing.assert_allclose(theirs[key].numpy(), x.numpy(), rtol=1e-5, atol=1e-6)
            else:
                assert theirs[key].numpy().tobytes() == x.detach().numpy().tobytes(), (call, key)
