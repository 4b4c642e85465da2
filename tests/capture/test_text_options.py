"""Text made of strings that the data choose, as a model that writes text chooses letters and words."""

import numpy as np

import tenon as tn
from capture.both import check

WORDS = ["red", "green", "blue", "white", "black"]
LETTERS = list("abcdefghijklmnopqrstuvwxyz .,!?")
TABLES = np.random.default_rng(0).normal(size=(5, 31, 31)).astype(np.float32) * 0.1     # so that roundings die out
STARTS = tuple(row.tolist() for row in TABLES[4, :5])


def following(x, i):
    return tn.tanh(x @ tn.asarray(TABLES[0]) + tn.asarray(TABLES[1])[i])


def test_a_text_of_many_letters_is_one_graph():
    def f(x):
        text, i = "", 0
        for _ in range(30):
            x = following(x, i)
            i = int((x @ tn.asarray(TABLES[2])).argmax())
            text += LETTERS[i]
        return text
    check(f, inputs=STARTS)


def test_words_are_joined_and_formatted():
    def f(x):
        words, i = [], 0
        for k in range(4):
            x = following(x, i)
            i = int(x[:5].argmax())
            words.append(WORDS[i].upper() if k % 2 else f"{k}: {WORDS[i]:>7s} {x.sum() > 0}")
        i = int(x[:5].argmin())
        return " ".join(words), "%s, %r" % (WORDS[i], WORDS[i]), str(WORDS[i]) + repr(WORDS[i]), words  # noqa: UP031
    check(f, inputs=STARTS)


def test_sums_of_few_strings_are_compared():
    def f(x):
        colour, size = "red" if x[0] > 0 else "blue", "big" if x[1] > 0 else "small"
        name = colour + " " + size
        again = size + name
        if name.startswith("red"):
            x = x * 2
        return x, name == "red big", name in ("blue big", "red small"), "small" in name, len(name), name[0], again
    check(f, inputs=STARTS)


def test_a_method_that_fails_for_a_string_not_chosen():
    def f(x):
        return ["12", "x", "7"][int(x[:3].argmax())].index("x" if x[:3].argmax() == 1 else "")
    check(f, inputs=STARTS)


def test_a_text_that_ends_where_the_data_say():
    def f(x):
        text, i = "", 0
        for _ in range(8):
            x = following(x, i)
            i = int((x @ tn.asarray(TABLES[2])).argmax())
            if LETTERS[i] in " .,!?":
                break
            text += LETTERS[i]
        return text
    check(f, inputs=STARTS, fullgraph=False)


def test_text_of_an_arm_leaves_it():
    def f(x):
        note = None
        i = int(x[:5].argmax())
        if x.sum() > 0:
            y = x * 2
            note = WORDS[i] + f" {float(y[0]):.2f}"
        level = f"{float(x[0] * 3):.1f}" if x[1] > 0 else f"{float(x[1] - 1):.1f}"
        return note, level
    check(f, inputs=STARTS)


def test_one_of_many_functions():
    """They nest as a tree: one in another they would be deeper than capture goes."""
    experts = [lambda x, k=k: x * k + k for k in range(40)]

    def f(x):
        return experts[int(x[:31].argmax())](x), experts[-1 - int(x[:31].argmin())](x)
    check(f, inputs=STARTS)


def test_a_function_that_asks_which_it_is():
    """In the branch of one option it is known that it is no other."""
    def f(x):
        things = [x, None, "two", 3, (x, 4), [5.0], tn.sin]
        it = things[int(x[:7].argmax())]
        return x * 2 if it is None else it(x) if it is tn.sin else (it, it) if isinstance(it, (str, int)) else it[0]
    check(f, inputs=STARTS)
