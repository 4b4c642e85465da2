"""Containers: lists, tuples, dictionaries and sets that branches and loops fill, read and change."""

from collections import OrderedDict, defaultdict, deque, namedtuple

from capture.corpus import T, V, program, scalar

Point = namedtuple("Point", "x y")


@program
def list_grows_in_a_loop(x):
    parts = []
    for k in range(3):
        parts.append(x * k)
    return T.stack(parts)


@program
def list_grows_in_a_branch(x, y):
    kept = [x]
    for row in y:
        if T.sum(row) > 0:
            kept.append(row)
    return T.stack(kept)


@program
def list_grows_in_a_while_loop(x):
    history = []
    while T.sum(T.abs(x)) > 1.0:
        history.append(T.sum(x))
        x = x * 0.5
    return T.stack(history)


@program
def length_of_a_list_that_grew(x):
    found = []
    for k in range(4):
        if x[k] > 0:
            found.append(x[k])
    return x * len(found)


@program
def pop_in_a_branch(x):
    stack = [x, x * 2.0, x * 3.0]
    if T.sum(x) > 0:
        stack.pop()
    return stack[-1]


@program
def item_assignment_in_a_branch(x):
    items = [x, x, x]
    if T.sum(x) > 0:
        items[1] = x * 10.0
    else:
        items[2] = x * 20.0
    return items


@program
def comprehension_with_a_tensor_filter(x):
    positive = [v for v in x if v > 0]
    return sum(positive) if positive else T.sum(x)


@program
def dictionary_filled_in_a_branch(x):
    out = {"x": x}
    if T.sum(x) > 0:
        out["scale"] = T.sum(x)
        out["y"] = x * 2.0
    else:
        out["scale"] = T.max(x)
        out["y"] = x * 3.0
    return out


@program
def dictionary_with_a_key_in_one_branch(x):
    out = {"x": x}
    if T.sum(x) > 0:
        out["positive"] = x * 2.0
    return out


@program
def dictionary_counted_in_a_loop(x):
    count = {"up": 0, "down": 0}
    for k in range(3):
        if x[k + 1] > x[k]:
            count["up"] += 1
        else:
            count["down"] += 1
    return count["up"], count["down"]


@program
def dictionary_iteration(x):
    weights = {"a": 1.0, "b": 2.0, "c": -1.0}
    total = x
    for name, w in weights.items():
        if name != "b" and T.sum(total) > 0:
            total = total + w
    return total


@program
def dictionary_get_with_default(x):
    options = {"scale": 2.0}
    return x * options.get("scale", 1.0) + options.get("shift", 0.5)


@program
def default_dictionary(x):
    groups = defaultdict(list)
    for k in range(4):
        groups[k % 2].append(x[k])
    return T.stack(groups[0]) if T.sum(x) > 0 else T.stack(groups[1])


@program
def ordered_dictionary(x):
    layers = OrderedDict(double=lambda v: v * 2.0, shift=lambda v: v + 1.0)
    for layer in layers.values():
        x = layer(x) if T.sum(x) > 0 else x
    return x


@program
def named_tuple_replaced(x):
    p = Point(x, T.sum(x))
    if p.y > 0:
        p = p._replace(x=p.x * 2.0)
    return p


@program
def tuple_that_grows(x, y):
    kept = ()
    for row in y:
        kept = kept + (x + row,)
    return kept if T.sum(x) > 0 else kept[::-1]


@program
def set_of_python_values(x):
    seen = set()
    for word in ("a", "b", "a"):
        seen.add(word)
    return x * len(seen) if T.sum(x) > 0 else x


@program
def deque_as_a_window(x, y):
    window = deque(maxlen=2)
    for row in y:
        window.append(row)
    return sum(window) + x if T.sum(x) > 0 else window[0]


@program
def nested_lists_of_tensors(x):
    grid = [[x * (i + j) for j in range(2)] for i in range(2)]
    if T.sum(x) > 0:
        grid[1][0] = -x
    return grid


@program
def slices_of_a_list(x):
    parts = [x * k for k in range(5)]
    return T.stack(parts[1:4]) if T.sum(x) > 0 else T.stack(parts[::2])


@program
def sorted_by_a_tensor(x):
    pairs = [(x[0], "first"), (x[1], "second")]
    return max(pairs, key=lambda pair: pair[0])[0]


@program([[V(1, 2), V(3, 4)]], [[V(-1, -2), V(3, -4)]], [[V(1, 2), V(3, 4)]])
def argument_list_is_read(pair):
    a, b = pair
    return a + b if T.sum(a) > 0 else a - b


@program([[V(1, 2)], V(3, 4)], [[V(-1, -2)], V(3, -4)], [[V(1, 2)], V(3, 4)])
def argument_list_is_appended_to(items, x):
    items.append(x * 2.0)
    return len(items) * x


@program([{"a": V(1, 2), "b": 3}], [{"a": V(-1, -2), "b": 3}], [{"a": V(1, 2), "b": 4}])
def argument_dictionary_is_changed(table):
    table["a"] = table["a"] * table["b"]
    return table["a"]


@program([V(1, 2, 3), scalar(1)], [V(1, 2, 3), scalar(2)])
def list_indexed_by_a_tensor(x, i):
    choices = [x, x * 10.0, x * 100.0]
    return choices[int(i)]


@program
def membership_of_a_python_list(x, mode="b"):
    return x * 2.0 if mode in ["a", "b"] and T.sum(x) > 0 else x


@program
def any_and_all_over_lists(x, y):
    if any(T.sum(row) > 3.0 for row in y):
        return x + 1.0
    if all(T.max(row) > 0.0 for row in y):
        return x - 1.0
    return x


@program
def sum_and_zip(x, y):
    return sum(a * b for a, b in zip(x, [T.sum(row) for row in y], strict=False))


@program
def reversed_and_enumerated(x, y):
    for k, row in enumerate(reversed(list(y))):
        x = x + row * k if T.sum(row) > 0 else x
    return x
