"""`torch.compile(model, backend="tenon")`: PyTorch's models give what they give eagerly, and Tenon runs all of them."""

from __future__ import annotations

import copy
import subprocess
import sys
from importlib.metadata import entry_points
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tenon.torch
from interop.torch_compiled import compare


class Residual(nn.Module):
    def __init__(self, channels: int, out: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
                                  nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
        self.skip = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.skip(x))


def resnet() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
                         Residual(8, 8, 1), Residual(8, 12, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5))


class Inverted(nn.Module):
    """A block of MobileNetV3: channels apart, squeezed and excited."""

    def __init__(self, channels: int, wide: int):
        super().__init__()
        self.grow = nn.Sequential(nn.Conv2d(channels, wide, 1), nn.BatchNorm2d(wide), nn.Hardswish())
        self.apart = nn.Sequential(nn.Conv2d(wide, wide, 5, 1, 2, groups=wide), nn.BatchNorm2d(wide), nn.Hardswish())
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, 4, 1), nn.ReLU(), nn.Conv2d(4, wide, 1),
                                  nn.Hardsigmoid())
        self.shrink = nn.Conv2d(wide, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.apart(self.grow(x))
        return x + self.shrink(y * self.gate(y))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), nn.GroupNorm(2, 8), nn.SiLU())
        self.down = nn.Conv2d(8, 16, 3, 2, 1)
        self.inner = nn.Sequential(nn.GroupNorm(4, 16), nn.GELU(), nn.Conv2d(16, 16, 3, 1, 1))
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.last = nn.Conv2d(24, 3, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.first(x)
        b = self.inner(self.down(a))
        near = F.interpolate(b, scale_factor=2, mode="nearest")[:, :8]
        smooth = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False)[:, 8:]
        return self.last(torch.cat([a, self.up(b), near + smooth], 1))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Transformer(nn.Module):
    """GPT-2 where causal, BERT where not."""

    def __init__(self, causal: bool, dropout: float = 0.1):
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(12, 16)
        self.blocks = nn.ModuleList(nn.ModuleDict({
            "norm": nn.LayerNorm(16), "attention": Attention(16, 2, causal), "norm2": nn.LayerNorm(16),
            "wide": nn.Linear(16, 32), "narrow": nn.Linear(32, 16)}) for _ in range(2))
        self.drop, self.norm = nn.Dropout(dropout), nn.LayerNorm(16)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.words(words) + self.places(torch.arange(words.shape[1])))
        for b in self.blocks:
            x = x + self.drop(b["attention"](b["norm"](x)))
            x = x + self.drop(b["narrow"](F.gelu(b["wide"](b["norm2"](x)))))
        return self.norm(x) @ self.words.weight.T


class Llama(nn.Module):
    """Rotary places, grouped queries, RMS norms, gated units."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm, self.norm2 = nn.Embedding(40, 16), nn.RMSNorm(16), nn.RMSNorm(16)
        self.q, self.k, self.v = nn.Linear(16, 16, False), nn.Linear(16, 8, False), nn.Linear(16, 8, False)
        self.o, self.gate, self.up = nn.Linear(16, 16, False), nn.Linear(16, 24, False), nn.Linear(16, 24, False)
        self.down = nn.Linear(24, 16, False)
        self.register_buffer("rates", 1.0 / 100 ** (torch.arange(0, 4, 2) / 4))

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        angle = torch.outer(torch.arange(x.shape[2]), self.rates).repeat(1, 2)
        a, b = x.chunk(2, -1)
        return x * angle.cos() + torch.cat([-b, a], -1) * angle.sin()

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        y, (n, t) = self.norm(x), words.shape
        q, k, v = (f(y).view(n, t, -1, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        k, v = self.rotated(k).repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        y = F.scaled_dot_product_attention(self.rotated(q), k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(n, t, 16))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


IMAGES, WORDS = (4, 3, 16, 16), (2, 12)

MODELS: dict[str, Any] = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3),
                                         nn.Linear(32, 5)), lambda: torch.randn(8, 20)),
    "resnet": (resnet, lambda: torch.randn(IMAGES)),
    "mobilenet": (lambda: Inverted(3, 8), lambda: torch.randn(IMAGES)),
    "unet": (UNet, lambda: torch.randn(IMAGES)),
    "gpt": (lambda: Transformer(True), lambda: torch.randint(0, 50, WORDS)),
    "bert": (lambda: Transformer(False), lambda: torch.randint(0, 50, WORDS)),
    "llama": (Llama, lambda: torch.randint(0, 40, WORDS)),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), lambda: torch.randn(2, 5, 16)),
    "encoder layer, norms first": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True,
                                                                      activation="gelu"), lambda: torch.randn(2, 5, 16)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_the_same_run_by_tenon(name: str) -> None:
    make, data = MODELS[name]
    compare(make(), data())


@pytest.mark.parametrize("masked", [False, True])
def test_attention_whose_keys_serve_several_heads(masked: bool) -> None:
    mask = torch.randn(2, 1, 6, 6) if masked else None

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=not masked, enable_gqa=True)
    compare(Function(attend), torch.randn(2, 6, 6, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8))


COMPLEX: dict[str, Any] = {
    "both axes": lambda x: torch.fft.fftn(torch.fft.fftn(x, dim=-1), dim=-2).real,
    "there and back": lambda x: torch.fft.irfft2(torch.fft.rfft2(x, norm="ortho") * 2, norm="ortho"),
    "odd length": lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=1), n=5, dim=1),
    "size": lambda x: torch.fft.ifft(x, norm="ortho").abs(),
    "parts": lambda x: torch.view_as_real(torch.fft.fft(x)),
    "conjugate": lambda x: (torch.fft.fft(x).conj() * torch.complex(x, x + 1)).imag,
    "turned": lambda x: torch.view_as_real(torch.view_as_complex(x.reshape(3, 5, 3, 2)) * torch.polar(
        torch.ones(3), torch.arange(3.0))).flatten(-2),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_and_transforms(name: str) -> None:
    compare(Function(COMPLEX[name]), torch.randn(3, 5, 6))


def test_signs_that_pytorch_has_not_applied_are_applied() -> None:
    doubled = torch.compile(lambda x: x * 2, backend="tenon")
    for x in (torch.randn(4, dtype=torch.complex64), torch.randn(1, dtype=torch.complex64)):
        doubled(x)
        assert torch.equal(doubled(x.conj()), x.conj() * 2)
        assert torch.equal(doubled(x.conj().imag), x.conj().imag * 2)


# ---------------------------------------------------------------- what a backend has to keep


class Function(nn.Module):
    def __init__(self, function: Any):
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def test_what_tenon_has_no_rule_for_is_run_by_pytorch_and_counted() -> None:
    compare(Function(lambda x: torch.mode(x * 2, 1).values + 1), torch.randn(3, 3), mapped=False)
    report = tenon.torch.report()
    assert report.in_torch["mode"] >= 1
    assert "mode" in str(report)


def test_what_checks_its_results_is_run_by_pytorch_in_order() -> None:
    def solved(x: torch.Tensor) -> Any:
        matrix = x @ x.mT + 3 * torch.eye(4)
        return torch.linalg.inv(matrix) * 2, torch.linalg.cholesky(matrix) + 1, torch.linalg.solve(matrix, x)
    compare(Function(solved), torch.randn(4, 4), mapped=False)
    with pytest.raises(RuntimeError, match="singular"):
        torch.compile(lambda x: torch.linalg.inv(x) * 2, backend="tenon")(torch.zeros(3, 3))


def test_results_lie_in_memory_as_pytorch_promises() -> None:
    compare(Function(lambda x: (x.permute(2, 0, 1) * 2, x.sum(0).expand(3, 4, 5), (x + 1).mT.contiguous())),
            torch.randn(3, 4, 5))


def test_arguments_that_do_not_lie_in_order_are_read_as_they_lie() -> None:
    x = torch.randn(4, 6, 5).permute(2, 0, 1)
    compare(Function(lambda x, y, z: x * 2 + y + z), x, torch.randn(5, 1, 1).expand(5, 4, 6), torch.randn(5, 4, 12)[..., ::2])


def test_arguments_that_are_changed_are_changed() -> None:
    def change(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        x[0] = 5
        return x * 2
    with torch.no_grad():
        x = torch.randn(3, 4)
        y = x.clone()
        assert torch.equal(torch.compile(change, backend="tenon")(x), change(y))
        assert torch.equal(x, y)


def test_random_numbers_are_those_of_pytorch() -> None:
    def drawn(x: torch.Tensor, turned: torch.Tensor) -> Any:
        return F.dropout(x, 0.4), F.dropout(turned, 0.5), torch.rand(3) + x.sum() * 0, torch.randn_like(x), torch.bernoulli(x.sigmoid())
    compare(Function(drawn), torch.randn(6, 5), torch.randn(4, 3).t(), mapped=False, train=False)


def test_sizes_may_change() -> None:
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2))
    compiled = torch.compile(model, backend="tenon", dynamic=True)
    for n in (4, 9, 1, 3, 0):
        x = torch.randn(n, 5)
        torch.testing.assert_close(compiled(x), model(x))
        compiled(x).sum().backward()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.uint8, torch.bool])
def test_element_types(dtype: torch.dtype) -> None:
    x = (torch.arange(12).reshape(3, 4) % 3).to(dtype)
    compare(Function(lambda x: (x + x, x * 2, x.sum(0), x.float().exp(), x > 1, torch.where(x > 0, x, 1))), x, train=False)


def test_an_index_out_of_range_is_an_error() -> None:
    embedding = nn.Embedding(5, 3)
    compiled = torch.compile(embedding, backend="tenon")
    with pytest.raises((IndexError, RuntimeError)):
        compiled(torch.tensor([1, 7]))
    torch.testing.assert_close(compiled(torch.tensor([1, 4])), embedding(torch.tensor([1, 4])))


def test_an_option_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(Exception, match="fast"):
        torch.compile(nn.Linear(2, 2), backend="tenon", options={"fast": True})(torch.randn(2, 2))


def test_places_in_sorted_rows() -> None:
    edges, x = torch.tensor([1.0, 2.0, 2.0, 5.0]), torch.tensor([[0.0, 2.0], [5.0, 7.0]])
    compare(Function(lambda edges, x: (torch.searchsorted(edges, x), torch.searchsorted(edges, x, right=True),
                                       torch.bucketize(x, edges), torch.bucketize(x, edges, right=True))),
            edges, x, train=False)


def programs_made(model: nn.Module, *inputs: torch.Tensor) -> int:
    """How many programs it takes for these inputs, one call after the other."""
    torch._dynamo.reset()
    tenon.torch.reset_report()
    compiled = torch.compile(model, backend="tenon", dynamic=True)
    for x in inputs:
        found, expected = compiled(x), model(x)
        torch.testing.assert_close(found, expected)
        found.float().mean().backward()
    return tenon.torch.report().programs


def test_a_size_that_changes_needs_no_new_program() -> None:
    model = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.GELU(), nn.Linear(7, 2))
    assert programs_made(model, *(torch.randn(n, 5) for n in (4, 9, 3, 17))) == 2


def test_fractions_of_open_sizes_are_computed_in_the_graph() -> None:
    """Batch normalisation of rows keeps n / (n - 1) times the variance."""
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2),
                          Function(lambda x: x * (x.shape[0] / 3) + x.shape[0] ** 0.5)).double()
    eager = copy.deepcopy(model)
    torch._dynamo.reset()
    tenon.torch.reset_report()
    compiled = torch.compile(model, backend="tenon", dynamic=True)
    for n in (8, 5, 12, 3):
        x = torch.randn(n, 4, dtype=torch.float64)
        for call in (compiled, eager):
            call(x).square().sum().backward()
        for a, b in zip((*model.buffers(), *(p.grad for p in model.parameters())),
                        (*eager.buffers(), *(p.grad for p in eager.parameters())), strict=True):
            torch.testing.assert_close(a, b)
    assert not tenon.torch.report().reasons


def test_sizes_that_are_asked_about() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        half = x.shape[0] // 2
        y = torch.cat([x[half:], x[:half], x.new_ones(x.shape[0] % 3, x.shape[1])])
        return y / x.shape[0] if x.shape[0] > 6 else y * x.shape[1]
    model = nn.Sequential(nn.Linear(3, 3), Function(f))
    programs_made(model, *(torch.randn(n, 3) for n in (4, 9, 3, 17, 8, 1, 12)))


def test_a_transformer_of_any_length() -> None:
    model = Transformer(True, dropout=0.0)
    programs_made(model, *(torch.randint(0, 50, shape) for shape in ((2, 12), (3, 7), (4, 9))))


def test_sizes_that_the_data_decide_stay_with_pytorch() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        compare(Function(lambda x: (x[x > 0] * 2 + 1, (x * 2).sum(0), torch.nonzero(x).float().sum())), torch.randn(5, 4),
                mapped=False, train=False)
        compare(Function(lambda x, n: x * n.item() + 1), torch.randn(5, 4), torch.tensor(3), mapped=False, train=False)


def test_views_of_memory() -> None:
    def f(x: torch.Tensor) -> Any:
        y = (x * 2).t()
        overlapping = torch.as_strided(y * 1, (3, 3), (2, 1), 1) * 2
        return overlapping, (x * 2)[:, ::2], torch.as_strided_scatter(x * 2, torch.ones(2, 2), (2, 2), (5, 2), 1)
    compare(Function(f), torch.randn(3, 4))


@pytest.mark.parametrize("dim", [0, 2])
def test_weights_of_given_length(dim: int) -> None:
    compare(nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 6, 3), dim=dim), torch.randn(2, 4, 9))


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_of_embeddings(mode: str) -> None:
    compare(nn.EmbeddingBag(10, 4, mode=mode), torch.randint(0, 10, (3, 5)))
    compare(nn.EmbeddingBag(10, 4, mode=mode), torch.randint(0, 10, (8,)), torch.tensor([0, 3, 3, 6]))


def test_bags_of_maxima() -> None:
    compare(nn.EmbeddingBag(10, 4, mode="max"), torch.randint(0, 10, (8,)), torch.tensor([0, 3, 3, 6]), train=False)


@pytest.mark.parametrize(("size", "kernel", "stride", "padding", "ceil"), [
    (8, 2, 2, 0, False), (5, 2, 2, 0, False), (7, 3, 2, 1, False), (6, 3, 2, 1, True), (1, 1, 1, 0, False)])
@pytest.mark.parametrize("padded", [True, False])
def test_pools_and_their_gradients(size: int, kernel: int, stride: int, padding: int, ceil: bool, padded: bool) -> None:
    mean = nn.AvgPool2d(kernel, stride, padding, ceil, padded)
    largest = nn.MaxPool2d(kernel, stride, padding, ceil_mode=ceil)
    compare(Function(lambda x: (mean(x), largest(x), F.adaptive_avg_pool2d(x, (max(1, size // 2), 1)))),
            torch.randn(2, 3, size, size + 1))


def test_pytorch_finds_the_backend_where_tenon_is_installed() -> None:
    if not any(x.name == "tenon" for x in entry_points(group="torch_dynamo_backends")):
        pytest.skip("Tenon is not installed here, or was before it had this entry point")
    code = "import torch; print(torch.compile(torch.nn.Linear(3, 2), backend='tenon')(torch.ones(4, 3)).shape)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "torch.Size([4, 2])"


@pytest.mark.parametrize("size", [7, 1])
def test_open_sizes_where_an_axis_of_one_element_has_any_stride(size: int) -> None:
    """Results were read in another order than the program had written them."""
    weight = torch.randn(9, 4)
    of_words = torch.compile(lambda i: torch.nn.functional.embedding(i, weight).permute(2, 0, 1).unsqueeze(0),
                             backend="tenon", dynamic=True)
    of_images = torch.compile(lambda x: (x * 2 + 1, (x + 1)[0]), backend="tenon", dynamic=True)
    for n in (size, 5):
        indices = torch.randint(0, 9, (n, n))
        x = torch.nn.functional.embedding(indices, weight).permute(2, 0, 1).unsqueeze(0)
        assert torch.equal(of_words(indices), x)
        for found, wanted in zip(of_images(x), (x * 2 + 1, (x + 1)[0]), strict=True):
            assert torch.equal(found, wanted)
