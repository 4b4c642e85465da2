"""`tn.debug.Log`: what TensorBoard itself reads in the files that it writes."""

import io
import threading
import warnings

import ml_dtypes
import numpy as np
import pytest

import tenon as tn
from tenon import nn
from tenon.debug import console, event_files
from tenon.debug.dashboard import curve, dashboard_text
from tenon.debug.image_files import png_bytes
from tenon.errors import ArgumentError


@pytest.fixture(scope="module")
def accumulator():
    """What reads event files; skips where TensorBoard is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator",
                                     reason="tensorboard is not installed")
    size = dict.fromkeys(("scalars", "histograms", "images", "tensors"), 0)

    def read(folder):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = events.EventAccumulator(str(folder), size_guidance=size)
            found.Reload()
        return found
    return read


@pytest.fixture
def log(tmp_path):
    with tn.debug.Log(tmp_path / "run") as log:
        yield log


def test_scalars(log, tmp_path, accumulator):
    values = [0.5, -1e-30, float("inf"), float("nan"), 3]
    for value in values:
        log.scalar("loss", value)
    log.scalar("rate", tn.tensor([0.25]), step=7)
    log.scalar("rate", np.float64(1e300))
    log.scalars({"a/x": 1, "b": ml_dtypes.bfloat16(2.5)}, step=-3)
    log.close()
    found = accumulator(tmp_path / "run")
    assert [x.step for x in found.Scalars("loss")] == [0, 1, 2, 3, 4]
    assert np.array_equal([x.value for x in found.Scalars("loss")], np.float32(values), equal_nan=True)
    assert [(x.step, x.value) for x in found.Scalars("rate")] == [(7, 0.25), (8, float("inf"))]
    assert found.Scalars("a/x")[0].step == -3 and found.Scalars("b")[0].value == 2.5
    assert log.history["loss"][0] == (0, 0.5)


def test_histograms(log, tmp_path, accumulator):
    x = tn.tensor(np.linspace(-1, 3, 1000, dtype=np.float32))
    for values in (x, tn.ones(5), np.array([np.nan, 1.0, np.inf, 2.0]), np.zeros(0), x > 0, 7, [1e300, -1e300]):
        log.histogram("w", values)
    log.close()
    first, ones, odd, empty, bools, one, huge = (h.histogram_value for h in accumulator(tmp_path / "run").Histograms("w"))
    assert (first.min, first.max, first.num) == (-1, 3, 1000) and first.sum == pytest.approx(1000, rel=1e-5)
    assert sum(first.bucket) == 1000 and len(first.bucket) == len(first.bucket_limit) == 64
    assert list(first.bucket_limit) == sorted(first.bucket_limit) and first.bucket_limit[-1] == 3
    assert (ones.min, ones.max, sum(ones.bucket)) == (1, 1, 5)
    assert (odd.min, odd.max, odd.num) == (1, 2, 2)
    assert empty.num == 0 and sum(empty.bucket) == 0 and bools.max == 1 and one.min == 7
    assert huge.max == 1e300 and huge.sum_squares == np.inf


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 3), (3, 5, 7), (4, 5, 7), (5, 7, 4), (1, 5, 7)])
def test_images(log, tmp_path, accumulator, shape):
    pillow = pytest.importorskip("PIL.Image")
    picture = np.random.default_rng(0).random(shape, np.float32)
    log.image("picture", tn.tensor(picture))
    log.image("picture", (picture * 255).astype(np.uint8))
    log.close()
    shown, same = accumulator(tmp_path / "run").Images("picture")
    assert (shown.height, shown.width) == (5, 7)
    pixels = np.asarray(pillow.open(io.BytesIO(shown.encoded_image_string)))
    last = picture.transpose(1, 2, 0) if shape[0] in (1, 3, 4) and len(shape) == 3 and shape[2] not in (1, 3, 4) else picture
    assert np.abs(pixels.reshape(5, 7, -1) - last.reshape(5, 7, -1) * 255.0).max() <= 0.51
    assert np.abs(np.asarray(pillow.open(io.BytesIO(same.encoded_image_string))).astype(int) - pixels).max() <= 1


def test_text(log, tmp_path, accumulator):
    log.text("notes", "# Grüße\n" + "x" * 300, step=2)
    log.close()
    found = accumulator(tmp_path / "run")
    (event,) = found.Tensors("notes")
    assert event.tensor_proto.string_val[0].decode() == "# Grüße\n" + "x" * 300 and event.step == 2
    assert found.SummaryMetadata("notes").plugin_data.plugin_name == "text"


class Net(nn.Module):
    def __init__(self):
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 2)])

    def forward(self, x):
        for block in self.blocks:
            x = tn.relu(block(x))
        while x.sum() > 1:
            x = x * 0.5
        return x


def test_the_graph_has_modules_for_scopes(log, tmp_path, accumulator):
    net = Net()
    log.graph(tn.jit(lambda x: net(x)), tn.ones((3, 4)))
    log.close()
    nodes = {node.name: node for node in accumulator(tmp_path / "run").Graph().node}
    matmul = next(node for name, node in nodes.items() if name.startswith("forward/Net/blocks/0/") and node.op == "matmul")
    assert [d.size for d in matmul.attr["_output_shapes"].list.shape[0].dim] == [3, 4]
    assert matmul.attr["line"].s.decode().startswith("test_training_log.py:")
    assert any(name.startswith("held/blocks/1/weight") for name in nodes) and any("/body/" in name for name in nodes)
    known = set(nodes)
    assert all(x.partition(":")[0] in known for node in nodes.values() for x in node.input)


def test_many_threads_write_whole_records(log, tmp_path, accumulator):
    threads = [threading.Thread(target=lambda k=k: [log.scalar(f"t{k}", j) for j in range(200)]) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.flush()
    found = accumulator(tmp_path / "run")
    assert all([x.value for x in found.Scalars(f"t{k}")] == list(range(200)) for k in range(4))


def test_two_logs_of_one_folder_are_two_files(tmp_path):
    with tn.debug.Log(tmp_path) as a, tn.debug.Log(tmp_path) as b:
        assert a.path != b.path
    with pytest.raises(ArgumentError, match="is closed"):
        a.scalar("x", 1)


@pytest.mark.parametrize(("call", "words"), [
    (lambda log: log.scalar("x", tn.ones(2)), r"one number was expected for 'x', not f32\[2\]"),
    (lambda log: log.scalar("x", "3"), "real numbers were expected for 'x', not a str"),
    (lambda log: log.scalar("x", 1j), "real numbers were expected"),
    (lambda log: log.histogram("x", [1j]), "Log.histogram: real numbers were expected"),
    (lambda log: log.image("x", np.ones((2, 2, 2))), r"not an array of shape \(2, 2, 2\)"),
    (lambda log: log.image("x", np.ones((0, 2))), "1, 3 or 4 channels was expected"),
    (lambda log: log.image("x", 3.0), "1, 3 or 4 channels was expected"),
])
def test_mistakes_are_messages(log, call, words):
    with pytest.raises(ArgumentError, match=words):
        call(log)


def test_check_sums():
    assert event_files.crc32c(b"") == 0 and event_files.crc32c(bytes(32)) == 0x8A9136AA      # RFC 3720, B.4
    assert event_files.record(b"")[:8] == bytes(8) and len(event_files.record(b"abc")) == 12 + 3 + 4


def test_png_of_one_pixel():
    assert png_bytes(np.zeros((1, 1, 1), np.uint8)).startswith(b"\x89PNG\r\n\x1a\n")


def test_curves_are_drawn(log, tmp_path):
    pytest.importorskip("matplotlib")
    log.scalar("loss", 1.0)
    log.scalar("acc", 0.1)
    log.chart(tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_curves_stay_on_the_terminal(tmp_path, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setattr("sys.stderr", shown := Terminal())
    with tn.debug.Log(tmp_path, live=True, total=50) as log:
        for k in range(50):
            log.scalars({"loss": 1.0 / (k + 1), "rate [x]": k})
    last = shown.getvalue().rsplit("loss", 1)[1]
    assert "▁" in last and "rate [x]" in last and "step 50 of 50" in last and "MB" in last
    monkeypatch.setattr("sys.stderr", quiet := io.StringIO())
    with tn.debug.Log(tmp_path, live=True) as log:
        log.scalar("loss", 1.0)
    assert quiet.getvalue() == ""


def test_what_the_terminal_shows_of_odd_runs():
    assert dashboard_text({}, 0.0, None).startswith("step 0")
    assert "·" in dashboard_text({"a": [(0, float("nan"))]}, 1.0)
    assert len(curve(list(range(10_000)))) == 48 and curve([]) == "" and curve([3.0, 3.0]) == "▁▁"
    assert "0:00 left" in dashboard_text({"a": [(0, 1.0)] * 9}, 1.0, total=4)


def test_a_loader_shows_a_bar_when_asked(monkeypatch):
    shown = Terminal()
    monkeypatch.setattr(console, "HAVE_RICH", False)
    data = tn.data.TensorDataset(tn.arange(5))
    monkeypatch.setattr("sys.stderr", shown)
    loader = tn.data.DataLoader(data, batch_size=2, progress="epoch")
    assert [x.tolist() for x, in loader] == [[0, 1], [2, 3], [4]]
    assert "epoch 2/3" in shown.getvalue()
    state = loader.state_dict()
    assert [x.tolist() for x, in tn.data.DataLoader(data, batch_size=2)] == [[0, 1], [2, 3], [4]] and state is not None
    monkeypatch.setattr("sys.stderr", quiet := io.StringIO())
    assert len(list(loader)) == 3 and quiet.getvalue() == ""
