"""Items of Python containers at an index or a key that the graph computes."""

import enum
import math

import tenon as tn
from capture.both import check, vector


def test_items_of_lists_tuples_and_dictionaries():
    def f(x):
        n = int((x > 0).sum())
        names, numbers, tensors = ["a", "b", "c", "d"], (1.5, 2.0, 7.0, 8.5), [x, x * 2, x + 1, x]
        table = {0: 1, 1: 2, 2: 7, 3: 8, "a": 0}
        return names[n], numbers[n] * tensors[-n - 1], table[n], names[n] == "b"
    check(f)


def test_items_of_several_kinds():
    def f(x):
        n = int((x > 0).sum())
        return [x, x[:2], 5, None][n]
    check(f)


def test_functions_and_objects_in_a_list():
    class Scale:
        def __init__(self, by):
            self.by = by

        def __call__(self, x):
            return x * self.by if x.sum() > 0 else x - self.by

    def f(x):
        n = int((x > 0).sum())
        layers = [Scale(2.0), Scale(3.0), tn.sin, lambda v: v * 5]
        return layers[n](x)
    check(f)


def test_items_are_stored():
    def f(x):
        n = int((x > 0).sum())
        counts, sums, table = [1, 2, 3, 4], [x, x, x, x], {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}
        counts[n] += 10
        counts[-1 - n] = 7
        sums[n] = sums[n] * 2
        table[n] -= 1
        return counts, sums, table
    check(f)


def test_an_index_that_is_out_of_range():
    check(lambda x: [x, x + 1][int(x.sum())], inputs=([1.0], [0.0], [5.0], [-1.0], [-2.0], [-3.0]))
    check(lambda x: {1: x, 2: x + 1}[int(x.sum())], inputs=([1.0], [2.0], [0.0]))


def test_a_tensor_is_an_index_too():
    check(lambda x: [x, x + 1, x * 2, x - 5][(x > 0).sum()])


def test_the_gradient_goes_to_the_item_chosen():
    def f(a, b, k):
        y = ([a, b][int(k)] ** 2).sum()
        y.backward()
        return y
    jitted = tn.jit(f, fullgraph=True)
    for k in (0.0, 1.0, 0.0):
        leaves = [[vector(1.0, 2.0), vector(3.0, 4.0)] for _ in range(2)]
        for pair, call in zip(leaves, (f, jitted), strict=True):
            for x in pair:
                x.requires_grad = True
            call(*pair, tn.tensor(k))
        for want, got in zip(*leaves, strict=True):
            assert (got.grad is None) == (want.grad is None)
            assert got.grad is None or got.grad.tolist() == want.grad.tolist()


class Kind(enum.Enum):
    """A class whose methods name it."""

    SINE = 1
    COSINE = 2

    def __call__(self, x):
        return x.sin() if self is Kind.SINE and x.sum() > 0 else x.cos()


def test_methods_that_name_their_class():
    check(lambda x: Kind.SINE(x) + Kind.COSINE(x))


def test_a_number_of_the_graph_in_code_of_a_library():
    check(lambda x: math.gcd(int(x.sum()), 6), inputs=([2.0], [3.0], [4.0]), fullgraph=False)
    check(lambda x: math.pow(float(x.sum()), 2.0), inputs=([2.0], [3.0]), fullgraph=False)
