"""8-bit weights: close to the weights they stand for, saved and loaded, and used by compiled code as they are."""

import numpy as np
import pytest

import tenon as tn
from tenon import data, nn, optim
from tenon.nn.quantized import encoded


@pytest.mark.parametrize("shape", [(5, 7), (1, 1), (0, 3), (3, 0), (64, 33), (4, 3, 2, 5), (3, 0, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_codes_are_within_half_a_scale_of_the_weight(shape, dtype):
    weight = tn.asarray(np.random.default_rng(0).standard_normal(shape)).astype(dtype)
    codes, scale = encoded(weight)
    assert codes.dtype == tn.int8 and scale.shape == shape[:1] and scale.dtype == weight.dtype
    rows = scale.numpy().astype("f8").reshape(-1, *[1] * (len(shape) - 1))
    difference = np.abs(weight.numpy().astype("f8") - codes.numpy() * rows)
    assert (difference <= 0.5 * (1 + 2.0**-7) * rows).all() and np.abs(codes).max() <= 127 if codes.size else True


def test_rows_of_zeros_stay_zero_and_numbers_that_are_none_are_refused():
    codes, scale = encoded(tn.zeros(2, 3))
    assert not codes.numpy().any() and not scale.numpy().any()
    with pytest.raises(tn.errors.ArgumentError, match="not a number"):
        encoded(tn.tensor([[1.0, float("nan")]]))
    with pytest.raises(tn.errors.DTypeError, match="floating"):
        encoded(tn.ones(2, 2, dtype="int32"))


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 16, 33])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_layer_is_the_layer_with_the_weight_that_the_codes_stand_for(rows, dtype):
    tn.manual_seed(0)
    layer = nn.QuantizedLinear(nn.Linear(70, 90).to(dtype))
    x = tn.rand(rows, 70).astype(dtype)
    exact = x.numpy().astype("f8") @ layer.weight.numpy().astype("f8").T + layer.bias.numpy().astype("f8")
    tolerance = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 0.05}[dtype]
    for call in (layer, tn.jit(layer), tn.jit(layer, constants=False)):
        np.testing.assert_allclose(call(x).numpy().astype("f8"), exact, rtol=tolerance, atol=tolerance)


def test_weights_are_not_stored_as_floats():
    layer = nn.QuantizedLinear(nn.Linear(512, 1024))
    call = tn.jit(lambda x: layer(x))
    for rows in (1, 16, 128):
        x = tn.rand(rows, 512)
        call(x)
        captured = tn.jit(lambda x: layer(x)).capture(x)
        assert captured.program.late.packs == () and captured.program.parts.made_from == ()
        assert captured.program.late.peak_bytes < 512 * 1024


CONVOLUTIONS = [
    (nn.Conv1d, (6, 10, 5), {"stride": 2, "padding": 3}, (2, 6, 19)),
    (nn.Conv2d, (16, 33, 3), {"padding": 1}, (2, 16, 9, 11)),
    (nn.Conv2d, (8, 12, (3, 1)), {"padding": "same", "groups": 4, "bias": False, "dilation": 2}, (1, 8, 7, 7)),
    (nn.Conv2d, (12, 12, 3), {"padding": 1, "groups": 12, "padding_mode": "reflect"}, (1, 12, 7, 7)),
    (nn.Conv3d, (3, 9, 2), {}, (1, 3, 4, 5, 6)),
]


@pytest.mark.parametrize(("kind", "sizes", "options", "shape"), CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_convolution_is_that_with_the_weight_that_the_codes_stand_for(kind, sizes, options, shape, dtype):
    tn.manual_seed(0)
    layer = kind(*sizes, **options).to(dtype)
    quantized = nn.QuantizedConv(layer)
    x = tn.rand(*shape).astype(dtype)
    layer.weight.assign(quantized.weight)
    exact = layer(x).numpy()
    for call in (quantized, tn.jit(quantized), tn.jit(quantized, constants=False)):
        with tn.no_grad():
            np.testing.assert_allclose(call(x).numpy(), exact, rtol=1e-5, atol=1e-5)
    assert not list(quantized.parameters()) and quantized.extra_repr() == layer.extra_repr()


def test_a_compiled_convolution_keeps_floats_in_the_order_in_which_it_reads_them():
    layer, x = nn.QuantizedConv(nn.Conv2d(64, 128, 3, padding=1)), tn.rand(1, 64, 9, 9)
    call = tn.jit(lambda x: layer(x))
    with tn.no_grad():
        call(x)
        captured = call.capture(x)
    assert len(captured.program.late.packs) == 1 and captured.program.parts.made_from == ()


def test_an_embedding():
    layer = nn.Embedding(10, 6)
    quantized = nn.quantize(layer)
    ids = tn.tensor([[1, 2, 9], [0, 0, 3]])
    np.testing.assert_allclose(quantized(ids).numpy(), quantized.weight.numpy()[ids.numpy()], rtol=1e-6)
    np.testing.assert_allclose(tn.jit(quantized)(ids).numpy(), layer(ids).numpy(), atol=0.02)


class Holder(nn.Module):
    def __init__(self):
        self.one = nn.Linear(4, 4)
        self.listed = [nn.Linear(4, 4), self.one]
        self.nested = {"a": (nn.Linear(4, 4), nn.LayerNorm(4)), "b": 3}
        self.sequence = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x):
        for layer in (self.one, *self.listed, *self.nested["a"], self.sequence):
            x = layer(x)
        return x


def test_layers_are_found_wherever_they_are_and_named():
    net, names = Holder(), []
    before = net(tn.ones(2, 4)).numpy()
    nn.quantize(net, lambda name, layer: names.append(name) or name != "nested.a.0")
    assert names == ["one", "listed.0", "nested.a.0", "sequence.0"]
    assert net.one is net.listed[1] and type(net.nested["a"][0]) is nn.Linear
    assert [type(x).__name__ for x in (net.one, net.listed[0], net.sequence[0])] == ["QuantizedLinear"] * 3
    np.testing.assert_allclose(net(tn.ones(2, 4)).numpy(), before, atol=0.1)


def test_a_captured_network_sees_that_it_was_quantised():
    net = Holder()
    call = tn.jit(lambda x: net(x))
    with tn.no_grad():
        for _ in range(3):
            call(tn.ones(2, 4))
        nn.quantize(net)
        np.testing.assert_allclose(call(tn.ones(2, 4)).numpy(), net(tn.ones(2, 4)).numpy(), rtol=1e-5)


def test_state_dicts_and_files(tmp_path):
    net = nn.quantize(Holder())
    path = tmp_path / "net.safetensors"
    tn.save(net, path)
    other = nn.quantize(Holder())
    other.load_state_dict(tn.load(path))
    np.testing.assert_array_equal(other(tn.ones(2, 4)).numpy(), net(tn.ones(2, 4)).numpy())
    assert tn.load(path)["one.codes"].dtype == tn.int8
    with pytest.raises(tn.errors.ArgumentError, match="codes"):
        Holder().load_state_dict(tn.load(path))


def test_gradients_flow_through_and_not_to_a_layer():
    layer = nn.quantize(nn.Linear(5, 3))
    x = tn.rand(2, 5).requires_grad_()
    layer(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.broadcast_to(layer.weight.numpy().sum(0), (2, 5)), rtol=1e-5)
    assert not list(layer.parameters())


def test_digits_are_read_as_well_as_before():
    tn.manual_seed(0)
    images, labels = data.digits()
    x, y = tn.tensor(images.reshape(len(images), -1).astype(np.float32)), tn.tensor(labels.astype(np.int64))
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = optim.Adam(net.parameters(), lr=1e-2)

    @tn.jit
    def step():
        loss = nn.cross_entropy(net(x[:1400]), y[:1400])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    for _ in range(60):
        step()

    def accuracy():
        with tn.no_grad():
            return float((net(x[1400:]).numpy().argmax(1) == y[1400:].numpy()).mean())
    before = accuracy()
    nn.quantize(net)
    assert before > 0.9 and abs(accuracy() - before) < 0.01


def test_a_gpt_predicts_as_well_as_before():
    from tests.test_examples import example
    tn.manual_seed(0)
    net = example("char_gpt").GPT(50, 16, 32, 2, 2)
    ids = np.random.default_rng(0).integers(0, 50, (8, 17))
    optimizer = optim.AdamW(net.parameters(), lr=1e-2)

    def loss():
        return nn.cross_entropy(net(tn.tensor(ids[:, :-1])).reshape(-1, 50), tn.tensor(ids[:, 1:]).reshape(-1))

    @tn.jit
    def step():
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()
    for _ in range(60):
        step()
    with tn.no_grad():
        before, quantized = float(loss()), float(tn.jit(loss)()) if nn.quantize(net) else 0.0
    assert before < 2.0 and abs(quantized - before) < 0.02 * before
