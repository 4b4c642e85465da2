"""What a function prints, logs and warns of is said by every call of its graph, as eager code says it."""

import contextlib
import io
import logging
import sys
import warnings

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim
from tenon.capture.jitted import Jitted
from tenon.errors import CaptureError
from tenon.graph.text import print_graph
from tenon.pipeline import optimize

LOG = logging.getLogger("tests.output_effects")
LOG.propagate = False


def told(call):
    """What a call gives and says: its outcome, its text on both streams, its log, its warnings."""
    out, err, log = io.StringIO(), io.StringIO(), io.StringIO()
    handler = logging.StreamHandler(log)
    handler.setFormatter(logging.Formatter("%(levelname)s %(filename)s:%(lineno)d %(funcName)s %(message)s"))
    LOG.addHandler(handler)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), \
                warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result = call()
            except Exception as error:
                result = type(error).__name__, str(error).partition("\n")[0]
    finally:
        LOG.removeHandler(handler)
    return result, out.getvalue(), err.getvalue(), log.getvalue(), [
        (str(w.message), w.category, w.filename, w.lineno) for w in caught]


def plain(x):
    if isinstance(x, tn.Tensor):
        return np.round(x.detach().numpy().astype(np.float64), 4).tolist()
    if isinstance(x, (list, tuple)):
        return [plain(y) for y in x]
    return {k: plain(y) for k, y in x.items()} if isinstance(x, dict) else x


def same(make, *calls, captures=3):
    """The function that `make` makes says and gives the same eagerly and as one graph, call by call."""
    eager, jitted = make(), tn.jit(make(), fullgraph=True)
    for k, args in enumerate([*calls, *calls]):
        want = told(lambda args=args: eager(*map(given, args)))
        got = told(lambda args=args: jitted(*map(given, args)))
        assert plain(got[0]) == plain(want[0]) and got[1:] == want[1:], f"call {k}"
    assert sum(len(record.captures) for record in jitted.records.values()) <= captures
    return jitted


def given(x):
    return tn.tensor(x) if isinstance(x, list) else x


A, B, C = [1.0, -2.0, 3.0], [-4.0, 0.5, 0.25], [0.0, 0.0, 0.0]


def test_tensors_numbers_and_containers_are_printed():
    def make():
        def f(x):
            y = x * 2
            print("y", y, y.sum(), y.sum().item(), x.shape, y.dtype, sep=" | ", end=".\n")
            print([y, 1.5, "a"], (y,), {"k": y, 2: [x]}, {3}, None, flush=True)
            print()
            print(y.int(), y > 0, file=sys.stderr)
            return y
        return f
    same(make, [A], [B], [C], captures=6)       # the stream that it names is another one each time


def test_nothing_is_printed_while_it_is_captured(capsys):
    @tn.jit(fullgraph=True)
    def f(x):
        print("value", x.sum().item())
        return x
    f.capture(tn.ones(3))
    assert not capsys.readouterr().out
    for _ in range(3):
        f(tn.ones(3))
    assert capsys.readouterr().out == "value 3.0\n" * 3


def test_the_stream_is_that_of_the_call():
    @tn.jit(fullgraph=True)
    def f(x):
        print(x)
        return x
    for _ in range(4):
        buffer = io.StringIO()
        with contextlib.redirect_stdout(buffer):
            f(tn.ones(2))
        assert buffer.getvalue() == "tensor([1., 1.])\n"


def test_text_in_branches_and_loops_has_its_order():
    def make():
        def f(x):
            print("begin")
            if x.sum() > 0:
                print("above", x.sum())
                if x.max() > 2:
                    print("far above")
            else:
                print("below")
            turns = 0
            while x.abs().sum() > 1:
                x = x / 2
                turns += 1
                if turns > 3:
                    print("many turns")
                    break
                print("turn", turns, x)
            print("end", turns)
            for v in x:
                if v > 0:
                    print("positive", v)
            return x
        return f
    same(make, [A], [B], [C])


def test_a_label_that_the_data_choose():
    def make():
        def f(x):
            label = "up" if x.sum() > 0 else "down"
            print(label, f"<{label:>6}>", x)
            if x.max() > 1:
                word = "large"
            else:
                word = None
            print(word)
            return x
        return f
    same(make, [A], [B], [C])


def test_formatted_strings():
    def make():
        def f(x, k):
            s = x.sum()
            width = 8
            print(f"{s:.3f} {s.item():>{width}.2e} {x} {k:03d} {k!r} {s!r:>20} {'a'!s:>3} {x.max()=}")
            print("a " + f"{s}" + " b", f"{f'{s:.1f}':>9}", str(s), repr(x), format(s.item(), ".2f"), str(k))
            return x
        return f
    same(make, [A, 1], [B, 2], [C, 3])


def test_text_is_made_by_methods_and_by_percent():
    def make():
        def f(x, k):
            losses = {"a": x.sum(), "b": x.max().item(), "k": k}
            print(", ".join(f"{name} {value:.3f}" for name, value in losses.items()))
            print("%s: %.3f %5d%%" % ("sum", x.sum().item(), k), "%(a).2f" % losses, "%r" % x)  # noqa: UP031
            print("{} {:.2f} {k:>4}".format(x, x.sum(), k=k), "-".join(["a", "b"]), "{}".format("x"), 7 % 4)  # noqa: UP032
            return x % 2
        return f
    same(make, [A, 1], [B, 2], [C, 3])


def test_text_is_returned_and_kept():
    class Holder:
        last = ""

    def make():
        holder = Holder()

        def f(x):
            before = holder.last
            holder.last = f"{x.sum():.2f}"
            return {"text": f"{x.mean():.3f}".rjust(10), "list": [str(x.max())]}, before
        return f
    same(make, [A], [B], captures=100)


def test_what_a_users_class_shows():
    class Meter:
        def __init__(self):
            self.total, self.count = 0.0, 0

        def update(self, x):
            self.total += x.item()
            self.count += 1

        def __str__(self):
            return f"{self.total / self.count:.4f} ({self.count})"

    def make():
        meter = Meter()

        def f(x):
            meter.update(x.sum())
            print("mean:", meter)
            print(f"{meter:>20}" if False else f"{meter}")
            return x
        return f
    same(make, [A], [B], [C])


def test_a_training_step_tells_its_loss():
    def make():
        tn.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
        opt = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(x, k):
            opt.zero_grad()
            loss = (net(x) ** 2).mean()
            print("before", net[2].bias)
            loss.backward()
            opt.step()
            print(f"step {k}: loss {loss.item():.5f}", loss, "after", net[2].bias)
            LOG.info("loss %.4f, step %d", loss, k)
            return loss.detach()
        return step
    same(make, *[[A, k] for k in range(5)])


def test_what_is_printed_in_a_branch_has_a_gradient():
    def make():
        w = nn.Parameter([1.0, 2.0, 3.0])

        def f(x):
            y = (w * x).sum()
            if y > 0:
                print("positive", y)
                y = y * 2
            while y < 4:
                print("grows", y)
                y = y * y + 1
            y.backward()
            grad, w.grad = w.grad, None
            print(grad)
            return grad
        return f
    same(make, [A], [B], [C])


def test_a_call_that_is_recorded_on_the_tape():
    w = nn.Parameter([1.0, 2.0, 3.0])

    def f(x):
        y = w * x
        print("y is", y)
        if y.sum() > 0:
            print("positive", y)
            y = y * 3
        return y.sum()
    jitted = tn.jit(f, fullgraph=True)
    for x in (A, B, A):
        found = []
        for function in (f, jitted):
            w.grad = None
            out = told(lambda function=function, x=x: function(tn.tensor(x)))
            out[0].backward()
            found.append((plain(out[0]), plain(w.grad), out[1:]))
        assert found[0] == found[1]


def test_messages_are_logged_where_the_program_logs_them():
    def make():
        def f(x):
            LOG.warning("sum %s of %d", x.sum().item(), 3)
            LOG.log(logging.ERROR, f"max {x.max():.2f}")
            if x.sum() > 0:
                LOG.error("positive: %s", x)
                LOG.error("%(name)s of %(shape)s", {"name": x.sum().item(), "shape": tuple(x.shape)})
            LOG.debug("not shown %s", x)
            return x
        return f
    same(make, [A], [B])


def test_the_level_is_that_of_the_call():
    @tn.jit(fullgraph=True)
    def f(x):
        LOG.info("sum %s", x.sum().item())
        return x
    try:
        lengths = []
        for level in (logging.INFO, logging.INFO, logging.ERROR, logging.INFO):
            LOG.setLevel(level)
            lengths.append(len(told(lambda: f(tn.ones(2)))[3]) > 0)
    finally:
        LOG.setLevel(logging.NOTSET)
    assert lengths == [True, True, False, True]


def test_warnings_come_from_the_users_line():
    def make():
        def f(x):
            warnings.warn(f"sum is {x.sum():.1f}", stacklevel=1)
            if x.max() > 2:
                warnings.warn("large", RuntimeWarning)  # noqa: B028
            return x
        return f
    same(make, [A], [B])


def test_a_warning_that_is_an_error_comes_in_the_middle():
    kept = []

    @tn.jit
    def f(x):
        print("before")
        warnings.warn("no", stacklevel=1)
        kept.append(1)
        return x
    with pytest.warns(UserWarning, match="no"):
        f(tn.ones(1))
    assert kept == [1]
    for _ in range(3):
        with warnings.catch_warnings(), contextlib.redirect_stdout(out := io.StringIO()):
            warnings.simplefilter("error")
            with pytest.raises(UserWarning, match="no"):
                f(tn.ones(1))
        assert kept == [1] and out.getvalue() == "before\n"


def test_a_number_that_changes_in_text_costs_no_captures():
    def make():
        def f(x, k):
            print(f"step {k}", k, "rate", 0.1 / (k + 1))
            return x * k
        return f
    same(make, *[[A, k] for k in range(50)])


def test_what_is_said_before_an_error_is_said_once():
    def make():
        def f(x, i):
            print("looks at", i)
            y = x[i]
            print("found", y)
            if y < 0:
                raise ValueError("below")
            return y
        return f
    same(make, [A, tn.tensor(0)], [A, tn.tensor(1)], [A, tn.tensor(7)], captures=8)


def test_a_batch_of_other_sizes():
    def make():
        def f(x):
            print("shape", x.shape, f"{x.shape[0]} rows", len(x), x)
            return x.sum()
        return f
    same(make, [[1.0] * 3], [[1.0] * 4], [[2.0] * 5])


@pytest.mark.parametrize("look", [lambda t: t.split(), len, lambda t: t[0], lambda t: t == "a", lambda t: {t: 1},
                                  lambda t: "1" in t, bool, lambda t: t.encode()])
def test_text_that_is_looked_at_runs_with_graph_breaks(look):
    def f(x):
        return look(f"{x.sum():.1f}")
    jitted = tn.jit(f)
    for x in (A, B, A):
        assert jitted(tn.tensor(x)) == f(tn.tensor(x))
    with pytest.raises(CaptureError, match="shows its elements"):
        tn.jit(f, fullgraph=True)(tn.tensor(A))


STREAMS = {
    "stdout": lambda x: sys.stdout.write(f"loss {x.sum().item():.2f}\n"),
    "lines": lambda x: (sys.stdout.writelines(["a\n", f"{x}\n"]), sys.stdout.flush()),
    "stderr": lambda x: (sys.stderr.write("\r" + str(x.sum().item())), sys.stderr.flush()),
}


@pytest.mark.parametrize("name", STREAMS)
def test_writing_to_a_standard_stream_is_part_of_the_graph(name):
    def make():
        def f(x):
            STREAMS[name](x)
            while x.sum() > 2:
                x = x / 2
                STREAMS[name](x)
            return x
        return f
    same(make, (A,), (B,), (A,))


def test_files_in_memory_and_files_to_write_are_told(tmp_path):
    buffer = io.StringIO()
    with open(tmp_path / "log", "w", encoding="utf-8") as file:
        @tn.jit(fullgraph=True)
        def f(x):
            print("a", x.sum().item(), file=buffer, sep="|")
            buffer.write(f"{x.sum().item():.1f}\n")
            if x.sum() > 2:
                file.write(str(x.sum().item()))
                print("", "large", file=file, flush=True)
            return x * 2
        for k in range(3):
            f(tn.ones(1) * (k + 1))
    assert buffer.getvalue() == "a|1.0\n1.0\na|2.0\n2.0\na|3.0\n3.0\n"
    assert (tmp_path / "log").read_text() == "3.0 large\n"


def test_a_file_of_a_user_s_class_is_written_to_by_its_own_code():
    class Tee:
        def __init__(self, *files):
            self.files, self.count = files, 0

        def write(self, text):
            self.count += 1
            for file in self.files:
                file.write(text)

    def run(jit):
        tee = Tee(io.StringIO(), io.StringIO())

        @jit
        def f(x):
            print("loss", x.sum().item(), file=tee)
            return x
        for k in range(4):
            f(tn.ones(1) * k)
        return tee.count, [file.getvalue() for file in tee.files]
    assert run(lambda f: tn.jit(f, fullgraph=True)) == run(lambda f: f)


def test_what_is_read_of_a_file_is_not_told():
    buffer = io.StringIO("one\ntwo\n")

    @tn.jit
    def f(x):
        for line in buffer:
            x = x + len(line)
            break
        buffer.write("three\n")
        return x
    assert [f(tn.zeros(1)).item(), f(tn.zeros(1)).item()] == [4.0, 0.0]
    assert buffer.getvalue() == "one\nthree\nthree\n" or buffer.getvalue().startswith("one\n")


def test_how_much_was_written():
    @tn.jit
    def f(x):
        n = sys.stdout.write("four")
        m = sys.stdout.write(f"{x.sum().item():.1f}")
        return x * n + m
    for _ in range(3):
        with contextlib.redirect_stdout(io.StringIO()):
            assert f(tn.ones(1)).item() == 7.0


def test_an_adapter_and_what_is_logged_beside():
    out = io.StringIO()
    logger = logging.getLogger("tenon-test-adapter")
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(run)s %(message)s"))
    logger.handlers[:], logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    adapter = logging.LoggerAdapter(logger, {"run": 7})

    @tn.jit(fullgraph=True)
    def f(x):
        adapter.info("loss %.1f", x.sum().item())
        adapter.debug("hidden")
        logger.warning("%s", x, extra={"run": 8})
        return x
    for _ in range(3):
        f(tn.ones(1))
    assert out.getvalue() == "7 loss 1.0\n8 tensor([1.])\n" * 3


def test_what_the_function_itself_redirects_runs_with_graph_breaks():
    def f(x):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            print("a")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn("b", stacklevel=1)
        return x * len(out.getvalue()) * len(caught)
    jitted = tn.jit(f)
    for _ in range(3):
        assert told(lambda: jitted(tn.ones(1)).item()) == (2.0, "", "", "", [])


def test_printing_through_other_functions():
    def make():
        def show(*args, **keywords):
            print(*args, **keywords)

        def f(x):
            show("a", x, sep="-")
            list(map(print, [x, x.sum()]))
            [print(v) for v in x]
            return x
        return f
    same(make, [A], [B])


def test_a_saved_function_does_not_print(tmp_path):
    @tn.jit
    def f(x):
        print(x)
        return x * 2
    with pytest.raises(tn.errors.ArgumentError, match="prints"):
        tn.save(f, tmp_path / "f", tn.ones(2))


def test_a_first_import_within_the_function_is_in_the_graph():
    sys.modules.pop("colorsys", None)

    def make():
        def f(x):
            import colorsys
            return x * colorsys.rgb_to_hsv(1.0, 0.5, 0.0)[0]
        return f
    same(make, [A], [B])


def test_a_function_that_only_runs_with_graph_breaks_is_called_as_it_is(monkeypatch):
    looked = []
    find = Jitted._find_and_run
    monkeypatch.setattr(Jitted, "_find_and_run", lambda self, *args: looked.append(1) or find(self, *args))

    @tn.jit
    def f(x, exact=True):
        return min(x.tolist()) if exact else x.min()
    for k in range(300):
        assert f(tn.tensor([float(k), 2.0])) == min(k, 2)
    assert len(looked) < 20
    for _ in range(100):
        f(tn.ones(2), exact=False)
    assert sum(len(record.captures) for record in f.records.values()) == 1


def test_a_branch_that_only_prints_beside_weights_that_nobody_reads():
    weight = tn.tensor([0.5, -1.0, 2.0])

    def make():
        def f(x):
            if x.sum() < 0.5:
                print("low", x.sum())
            unread = weight * 2         # noqa: F841
        return f
    jitted = same(make, ([1.0, 2.0, 3.0],), ([-1.0, 2.0, -3.0],))
    assert "say" in print_graph(optimize(jitted.capture(tn.ones(3)).graph))


def test_a_branch_that_only_prints_is_shown_after_every_pass():
    def f(x):
        if x.sum() < 0.5:
            print("low")
        return x
    assert "cond" in print_graph(optimize(tn.jit(f).capture(tn.ones(3)).graph))
