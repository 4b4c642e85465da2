"""What nobody should give to machine code, or many threads at once, gets the answer or the error that Python gives."""

import contextlib
import gc
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tenon as tn
from tenon.eager import recipes

pytestmark = pytest.mark.usefixtures("machine_code")


class Unmade(tn.Tensor):
    """A tensor without a state: its class calls nothing of the one above it."""

    def __init__(self):
        pass


@pytest.mark.parametrize("call", [
    lambda t, x: t + x, lambda t, x: x + t, lambda t, x: t + 1.0, lambda t, x: 1.0 - t, lambda t, x: -t, lambda t, x: t @ x,
    lambda t, x: t.sum(), lambda t, x: tn.stack([x, t]), lambda t, x: tn.exp(t), lambda t, x: tn.where(x > 0, t, x),
    lambda t, x: t[0], lambda t, x: x[t:], lambda t, x: tn.add(t, t), lambda t, x: t.reshape(3, 1)])
def test_a_tensor_that_its_class_did_not_make_is_an_error(call):
    x = tn.ones(3)
    for _ in range(4):                  # these are remembered
        x.sum(), tn.stack([x, x]), x.reshape(3, 1), x[0], tn.where(x > 0, x, x)
    for given in (Unmade(), tn.Tensor.__new__(tn.Tensor)):
        with pytest.raises(AttributeError, match="own"):
            call(given, x)


def test_a_class_of_the_users_counts_as_a_tensor():
    class Kind(tn.Tensor):
        pass
    x, y = tn.tensor([1.0, 2.0]), Kind(np.array([3.0, 4.0], np.float32))
    for _ in range(4):
        assert (x + y).tolist() == (y + x).tolist() == [4.0, 6.0]
        assert y.sum().item() == 7.0 and tn.stack([x, y]).tolist() == [[1.0, 2.0], [3.0, 4.0]]
        assert type(x + y) is type(y.sum()) is tn.Tensor


@pytest.mark.parametrize("keep", [0, 1, None, "yes", np.True_, np.False_])
def test_a_flag_that_is_no_bool_is_numpys(keep):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    given = x, (1,), None, None, keep
    try:
        expected = np.add.reduce(*given)
    except TypeError:
        with pytest.raises(TypeError):
            recipes.natives[np.add.reduce](*given)
        return
    assert recipes.natives[np.add.reduce](*given).shape == expected.shape


def test_builtins_give_back_all_references():
    x, y, flags, zero = np.ones((3, 5), np.float32), np.ones(5, np.float32), np.ones((3, 5), bool), np.zeros((), np.float32)
    calls = [(recipes.natives[np.where], (flags, x, zero)), (recipes.natives[np.where], (flags, zero, zero)),
             (recipes.natives[np.where], (flags, x, "no")), (recipes.natives[np.add], (x, y)),
             (recipes.natives[np.add], (x, flags)), (recipes.natives[np.add], (x, np.ones(4, np.float32))),
             (recipes.natives[np.exp], (x,)), (recipes.natives[np.add.reduce], (x, (1,), None, None, True)),
             (recipes.natives[np.add.reduce], (x, (7,), None, None, True)),
             (recipes.natives[np.maximum.reduce], (x, 0, None, None, False, -np.inf))]
    held = x, y, flags, zero, x.dtype, flags.dtype

    def run():
        for call, given in calls:
            with contextlib.suppress(ValueError):       # sizes that do not fit, or an axis that there is not
                call(*given)
    run()
    gc.collect()
    gc.disable()                        # what others left would change the counts of element types meanwhile
    try:
        before = [sys.getrefcount(item) for item in held]
        for _ in range(200):
            run()
        after = [sys.getrefcount(item) for item in held]
    finally:
        gc.enable()
    assert all(abs(now - then) < 100 for now, then in zip(after, before, strict=True))


def test_grids_of_more_elements_than_there_are_words_are_an_error():
    one, other = (np.broadcast_to(np.float32(1), shape) for shape in ((4096, 1) * 3, (1, 4096) * 3))
    with pytest.raises(ValueError, match=r"(?i)big|dimension"):
        recipes.natives[np.add](one, other)


@pytest.mark.parametrize("count", range(1, 12))
@pytest.mark.parametrize("ndim", [0, 1, 4, 9])
def test_a_call_with_more_arguments_than_there_is_room_for_is_pythons(count, ndim):
    given = [tn.full((1,) * ndim, float(k)) for k in range(count)]
    for _ in range(5):
        assert tn.stack(given).numpy().reshape(-1).tolist() == list(range(count))


def test_a_list_that_holds_itself_is_an_error():
    x = tn.ones(2)
    for _ in range(4):
        tn.stack([x, x])
    given = [x]
    given.append(given)
    with pytest.raises(Exception):      # noqa: B017  # whichever: it must not end the process
        tn.stack(given)


def test_threads_with_numbers_of_their_own_do_not_meet():
    x, rounds = tn.arange(7).astype("float32"), 400

    def run(number):
        wanted = (np.where(x.numpy() > number, x.numpy() * np.float32(number), 0.5) + np.float32(number)).tolist()
        return all((tn.where(x > number, x * number, 0.5) + number).tolist() == wanted for _ in range(rounds))
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, [1.5, 2.0, 3.25, 4.0]))
