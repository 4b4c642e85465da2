"""Names for one object, in branches and loops on tensors."""

from capture.both import check


def test_two_names_of_one_tensor_part_in_a_loop():
    def f(x):
        a = b = x
        while a.abs().sum() > 1:
            a = a * 0.5
            b = b + 1
        return a, b
    check(f)


def test_two_names_of_one_tensor_changed_in_place():
    def f(x):
        a = x * 1
        b = a
        n = 0
        while b.sum() < 6:
            a += 1
            n = n + 1
            if n > 20:
                break
        return a, b, a is b
    check(f)


def test_two_names_part_after_a_change_in_place():
    def f(x):
        a = x * 1
        b = a
        n = 0
        while n < 3 and x.sum() < 100:
            a += 1
            a = a * 2
            n += 1
        return a, b
    check(f, fullgraph=False)


def test_an_argument_of_a_helper_is_changed_in_place():
    def grow(y):
        while y.sum() < 6:
            y += 1

    def f(x):
        a = x * 1
        grow(a)
        return a
    check(f)


def test_flags_that_are_equal_before_a_loop():
    def f(x):
        i = 0
        while True:
            if i >= 3:
                break
            if x[i] > 2:
                return i
            i += 1
        return None
    check(f)


def test_swapped_names():
    def f(x):
        a, b = x, x * 2
        while a.abs().sum() > 1:
            a, b = b * 0.25, a * 0.5
        return a, b
    check(f)


def test_one_list_under_two_names():
    def f(x):
        a = [x, x * 2]
        b = a
        if x.sum() > 0:
            a[0] = x + 5
        while b[0].abs().sum() > 1:
            b[0] = b[0] * 0.5
        return a[0], b[0], a is b
    check(f)
