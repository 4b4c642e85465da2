"""einops' functions on tensors."""

import subprocess
import sys

import numpy as np
import pytest

import tenon as tn

einops = pytest.importorskip("einops")
import tenon.interop.einops_backend  # noqa: E402  after einops is known to be there


def test_every_kind_of_call_gives_what_numpy_gives() -> None:
    a = np.arange(48.0).reshape(2, 4, 6)
    x = tn.asarray(a)
    for call in (lambda x: einops.rearrange(x, "b (h p) w -> b w p h", p=2), lambda x: einops.reduce(x, "b h w -> b w", "max"),
                 lambda x: einops.reduce(x, "b (h 2) w -> b 1 w h", "mean"),
                 lambda x: einops.repeat(x, "b h w -> b c (h r) w", c=3, r=2),
                 lambda x: einops.rearrange([x, x], "n b h w -> b n h w"), lambda x: einops.einsum(x, x, "b h w, c h w -> b c"),
                 lambda x: einops.pack([x, x[..., 0]], "b h *")[0],
                 lambda x: einops.unpack(x, [(2,), (4,)], "b h *")[1]):
        found = call(x)
        assert isinstance(found, tn.Tensor)
        np.testing.assert_allclose(found.numpy(), call(a))


@pytest.mark.parametrize("order", ["import tenon as tn, einops", "import einops, tenon as tn",
                                   "import tenon as tn, einops.layers, tenon.interop.einops_backend"])
def test_either_may_be_imported_first(order: str) -> None:
    program = f"{order}\nprint(einops.rearrange(tn.ones(2, 3), 'a b -> b a').shape)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "(3, 2)\n"


def test_gradients_and_graphs_go_through() -> None:
    x = tn.ones(2, 6, requires_grad=True)
    einops.reduce(x * x, "b (n k) -> b n", "sum", k=3).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[2.0] * 6] * 2
    turned = tn.jit(lambda x: einops.rearrange(x, "a b -> b a") * 2)
    assert turned(tn.ones(2, 3)).shape == (3, 2)
