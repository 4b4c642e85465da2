"""Random numbers: the published bits, the same bits compiled, the moments of distributions, the state of generators."""

import threading

import numpy as np
import pytest

import tenon as tn
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.graph.build import trace
from tenon.ops import philox_random as draws
from tenon.ops import random_draws as kinds
from tenon.ops.philox_random import philox, random_advance, random_bits, random_integers, random_uniform
from tenon.pipeline import compile
from tenon.random import Generator
from tenon.tensor_state import Changes, last_change
from tenon.types import TensorType, float32, float64, uint64

MASK = 0xFFFFFFFF
STATE = np.array([0x0123456789ABCDEF, 7], np.uint64)
COUNT = 20000


@pytest.fixture(autouse=True)
def seeded():
    tn.manual_seed(5)


@pytest.mark.parametrize(("counter", "key", "expected"), [       # from Random123's kat_vectors
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((MASK,) * 4, (MASK,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
])
def test_philox_gives_the_published_words(counter, key, expected):
    def wide(numbers):
        return tuple(np.array([n], np.uint64) for n in numbers)
    assert tuple(int(w[0]) for w in philox(wide(counter), wide(key))) == expected


@pytest.mark.parametrize("draw", [
    lambda state: random_bits(state, shape=(3, 7), stream=1),
    lambda state: random_bits(state, shape=(), stream=0),
    lambda state: random_uniform(state, shape=(5, 3), dtype=float32),
    lambda state: random_uniform(state, shape=(5, 3), dtype=float64, stream=3),
    lambda state: random_uniform(state, shape=(11,), dtype="f16"),
    lambda state: random_integers(state, low=-5, count=12, shape=(2, 9)),
    lambda state: random_integers(state, low=0, count=2 ** 63, shape=(9,)),
    random_advance,
])
def test_compiled_code_draws_the_same_bits(draw):
    program = compile(trace(draw, TensorType(uint64, (2,)), name="draw"))
    np.testing.assert_array_equal(program.run([STATE])[0], draw(tn.tensor(STATE)).numpy())


def test_words_do_not_depend_on_how_many_are_drawn():
    long = random_bits(STATE, shape=(100_000,)).numpy()
    np.testing.assert_array_equal(random_bits(STATE, shape=(3, 5)).numpy().ravel(), long[:15])
    assert len(np.unique(long)) > 99_990


def test_a_jitted_function_draws_what_eager_draws_and_advances_the_same_state():
    def draw():
        return tn.rand(3), tn.randint(10, (4,)), tn.dropout(tn.ones(8), 0.5)
    eager = [[t.tolist() for t in draw()] for _ in range(3)]
    tn.manual_seed(5)
    compiled = tn.jit(draw)
    assert [[t.tolist() for t in compiled()] for _ in range(3)] == eager
    assert eager[0] != eager[1]


# ---------------------------------------------------------------- distributions

def moments(x, mean, std):
    values = x.numpy().astype(np.float64)
    np.testing.assert_allclose(values.mean(), mean, atol=5 * std / COUNT ** 0.5)
    np.testing.assert_allclose(values.std(), std, rtol=0.05)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_uniform_and_normal(dtype):
    u = tn.rand(COUNT, dtype=dtype)
    assert u.numpy().min() >= 0 and u.numpy().max() < 1
    moments(u, 0.5 if dtype != "bf16" else 0.498, 12 ** -0.5)
    moments(tn.randn(COUNT, dtype=dtype), 0, 1)
    moments(tn.uniform(-2.0, 2.0, (COUNT,), dtype=dtype), 0, 4 * 12 ** -0.5)
    moments(tn.normal(3.0, 0.5, (COUNT,), dtype=dtype), 3, 0.5)


def test_the_other_distributions():
    moments(tn.random.exponential(2.0, (COUNT,)), 0.5, 0.5)
    moments(tn.bernoulli(tn.full((COUNT,), 0.3)), 0.3, 0.21 ** 0.5)
    moments(tn.randint(-3, 4, (COUNT,)), 0, 2)
    cut = tn.random.truncated_normal(-1.0, 2.0, (COUNT,))
    assert cut.numpy().min() >= -1 and cut.numpy().max() <= 2
    moments(cut, 0.2296, 0.7206)
    z = tn.randn(COUNT, dtype="c64").numpy()
    np.testing.assert_allclose([z.real.std(), z.imag.std()], 0.5 ** 0.5, rtol=0.03)


def test_classes_come_with_their_probabilities():
    p = np.array([0.1, 0.6, 0.0, 0.3], np.float32)
    for at in (tn.categorical(tn.log(tn.tensor(p)), (COUNT,)), tn.multinomial(tn.tensor(p), COUNT, replacement=True)):
        assert at.shape == (COUNT,)
        np.testing.assert_allclose(np.bincount(at.numpy(), minlength=4) / COUNT, p, atol=0.02)
    rows = tn.multinomial(tn.tensor(np.tile(p, (50, 1))), 3)
    assert rows.shape == (50, 3) and all(sorted(row) == [0, 1, 3] for row in rows.tolist())


def test_permutations():
    assert sorted(tn.randperm(100).tolist()) == list(range(100))
    assert tn.randperm(100).tolist() != tn.randperm(100).tolist()
    x = tn.arange(20)
    assert sorted(tn.random.shuffle(x).tolist()) == x.tolist()


def test_permutations_of_any_length_are_the_same_compiled():
    def draw(x):
        return tn.randperm(x.shape[0])
    compiled = tn.jit(draw)
    for n in (1, 2, 7, 130, 64, 0):
        tn.manual_seed(n)
        eager = draw(tn.zeros(n)).tolist()
        tn.manual_seed(n)
        assert compiled(tn.zeros(n)).tolist() == eager
        assert sorted(eager) == list(range(n))


def test_every_order_is_as_likely():
    orders = np.array([tn.randperm(3).tolist() for _ in range(600)])
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 6 and abs(counts - 100).max() < 40


def test_dropout_keeps_the_mean_and_its_gradient_the_mask():
    x = tn.ones(COUNT, requires_grad=True)
    y = tn.dropout(x, 0.25)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.numpy())
    np.testing.assert_allclose(np.unique(y.numpy()), [0, 4 / 3], rtol=1e-6)
    moments(y, 1, (1 / 3) ** 0.5)
    assert tn.dropout(x, training=False) is x
    assert tn.dropout(x, 1.0).numpy().max() == 0


# ---------------------------------------------------------------- the generator

def test_generators_are_independent_and_go_back_to_a_state():
    a, b = Generator(1), Generator(2)
    state = a.get_state()
    first = tn.rand(4, generator=a).tolist()
    assert first != tn.rand(4, generator=b).tolist() != tn.rand(4, generator=a).tolist()
    a.set_state(state)
    assert tn.rand(4, generator=a).tolist() == first == tn.rand(4, generator=Generator(1)).tolist()


def test_threads_never_draw_the_same_numbers():
    found, generator = [], Generator(0)

    def work():
        found.extend(tn.rand(1, generator=generator).item() for _ in range(200))
    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(set(found)) == 800


@pytest.mark.parametrize(("call", "error"), [
    (lambda: tn.dropout(tn.ones(3), 1.5), ArgumentError),
    (lambda: tn.randint(3, 3, (2,)), ArgumentError),
    (lambda: tn.multinomial(tn.ones(3), 4), ArgumentError),
    (lambda: tn.rand(3, dtype="i64"), DTypeError),
    (lambda: tn.rand(-1), ShapeError),
])
def test_bad_arguments(call, error):
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("draw", [
    lambda g: tn.randn(10, generator=g), lambda g: tn.randn(7, dtype="float64", generator=g),
    lambda g: tn.rand(3, 5, generator=g), lambda g: tn.rand(3, dtype="float16", generator=g),
    lambda g: tn.randint(-3, 9, (11,), generator=g), lambda g: tn.randn(3, dtype="complex64", generator=g),
    lambda g: tn.random.exponential(size=(5,), generator=g), lambda g: tn.rand(generator=g),
    lambda g: tn.randperm(6, generator=g), lambda g: tn.random.bernoulli(0.5, (3,), generator=g)])
def test_draws_that_are_made_along_with_earlier_ones_have_the_same_bits(draw, monkeypatch):
    def drawn(seed):
        generator = tn.random.Generator(seed)
        return [draw(generator).numpy() for _ in range(300)]
    found = drawn(5)
    again = drawn(5)                    # from the middle of what is known back to the start
    monkeypatch.setattr(draws, "MAX_PREFETCHED_WORDS", 0)
    monkeypatch.setattr(kinds, "MAX_PREFETCHED_WORDS", 0)
    for a, b, c in zip(found, again, drawn(5), strict=True):
        np.testing.assert_array_equal(a, c)
        np.testing.assert_array_equal(b, c)
        assert a.dtype == c.dtype


def test_numbers_that_were_made_along_are_nobody_elses():
    generator = tn.random.Generator(3)
    rows = [tn.rand(4, generator=generator).numpy() for _ in range(6)]
    assert not any(np.shares_memory(a, b) for k, a in enumerate(rows) for b in rows[:k])
    state = tn.tensor(np.array([3, 2 ** 64 - 2], np.uint64))            # the number of the draw goes round
    for _ in range(4):
        assert draws.random_uniform(state, shape=(4,)).shape == (4,)
        state = draws.random_advance(state)


def test_a_generator_counts_its_draws_as_the_operators_do_beyond_the_last_number_too():
    generator, state = tn.random.Generator(3), tn.tensor(np.array([3, 2 ** 64 - 3], np.uint64))
    generator.set_state(state)
    for _ in range(6):
        expected = draws.random_uniform(state, shape=(4,))
        np.testing.assert_array_equal(tn.rand(4, generator=generator).numpy(), expected.numpy())
        state = draws.random_advance(state)
        assert generator.get_state().tolist() == state.tolist()


def test_draws_are_noted_and_can_be_taken_back():
    generator = tn.random.Generator(3)
    first = [tn.rand(2, generator=generator).tolist() for _ in range(4)]
    before, changed = generator.get_state(), last_change()
    with Changes().noted() as noted:
        again = [tn.rand(2, generator=generator).tolist() for _ in range(2)]
    assert last_change() is not changed
    noted.settle()
    noted.restore()
    assert generator.get_state().tolist() == before.tolist()
    assert [tn.rand(2, generator=generator).tolist() for _ in range(2)] == again != first[:2]


def test_many_orders_are_dealt_as_each_of_them():
    chances = np.random.default_rng(0).random((40, 7))
    together = draws.dealt(chances).numpy()
    np.testing.assert_array_equal(together, [draws.dealt(row).numpy() for row in chances])
    assert draws.dealt(chances[:, :0]).shape == (40, 0) and draws.dealt(chances[:, :1]).tolist() == [[0]] * 40
