"""An operator refuses a size that the data decide where it refuses it eagerly; nothing is read beyond a tensor."""

import pytest

import tenon as tn
from tests.capture.both import outcome

ROWS = [[1.0, -1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0], [-1.0, -1.0, -1.0, -1.0], [-1.0, 1.0, -1.0, -1.0],
        [1.0, -1.0, 2.0, -3.0]]


def count(x):
    return int((x > 0).sum())


REFUSED = {
    "topk": lambda x: tn.topk(x[:3], count(x))[0], "kthvalue": lambda x: tn.kthvalue(x[:3], count(x))[0],
    "select": lambda x: x.select(0, count(x)), "select a row": lambda x: x.reshape(2, 2).select(1, count(x)),
    "unfold": lambda x: x[x > 0].unfold(0, 2, 1), "windows": lambda x: tn.nn.functional.avg_pool1d(x[x > 0][None], 3),
    "narrow": lambda x: tn.narrow(x, 0, count(x) - 1, 2), "largest of some": lambda x: x[x > 0].max(),
    "the first two": lambda x: tn.topk(x[x > 0], 2)[0],
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("first", range(len(ROWS)))
def test_what_does_not_fit_is_refused_in_any_order_of_calls(name, first):
    def function(x):
        return REFUSED[name](x)
    jitted = tn.jit(function)
    for values in (ROWS[first], *ROWS, *ROWS[::-1]):
        x = tn.tensor(values)
        want, got = (outcome(lambda f=f, x=x: f(x).tolist()) for f in (function, jitted))
        assert got == want, values


def test_what_fits_stays_in_the_graph():
    jitted = tn.jit(lambda x: x.select(0, count(x) - 1), fullgraph=True)
    for values in ROWS[:2]:
        jitted(tn.tensor(values))
