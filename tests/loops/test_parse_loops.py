"""Loop text is read back as what it was printed of; wrong text ends in an error that names its line, and soon.

`loops.compiled.check` reads back every kernel of the other tests here, and what each pass made of it.
"""

import random
from pathlib import Path

import pytest

from tenon.errors import GraphError, TenonError
from tenon.loops.loop_printer import print_kernel, print_loops
from tenon.loops.parse_loops import is_loop_text, parse_kernel, parse_loops
from tenon.loops.run_on_loop_text import run_on_loop_text
from tenon.loops.same_loops import is_same

GOLDEN = Path(__file__).parents[1] / "golden" / "loops"
TEXTS = [part.split("\n\n")[0].rstrip() for path in sorted(GOLDEN.glob("*.test"))
         for case in path.read_text().split("$ ")[1:] for part in case.partition("\n")[2].split("\n---\n")]

# Every construct that the passes' examples lack.
ALL = """\
def everything(x: f32[N, 8], k: i32[N], h: f16[8, 8], m: bool[N]) -> (out: f32[N, 8], half: f16[8, 8]):
    sizes(N, M)
    t0: f64[M] = temporary()
    row: f32[8] = local()
    for i0 in parallel(N, grain=max(1, 8192 // max(1, size(2*N)))):
        for i1 in vector(min(8, N - i0), most=8):
            v0 = x[checked(i64(k[i0]), N, mask=m[i0], wraps=False, operator='take') * 8 + i1]
            v1 = const(1.5, f16)
            row[i1] = (v0 if not_(m[i0]) else -inf)
            fetch(x[i0 * 8 + i1])
        r0: f32 = max()
        r1: bool = any()
        r2: f32 = mul()
        for i1 in range(8):
            r0 = max(r0, row[i1])
            r1 = r1 | (m[i0] | (k[i0] > 3))
            r2 = r2 * (row[i1] - 1.0)
        t0[i0] = f64(r0) * 2.0 + (const(1.0, f64) if r1 else const(0.5, f64))
    barrier()
    for i0_i1 in parallel(size(8*N)):
        i0: index[N] = i0_i1 // 8
        i1: index[8] = i0_i1 % 8
        v0 = bits_i32(x[i0 * 8 + i1]) >> 3 & 255
        out[i0 * 8 + i1] = f32(v0) * atan2(x[i0 * 8 + i1], 2.0) - (i0 - 3 - (i1 - 1)) % 7
    barrier()
    with contraction(batch=(b < 2), rows=(r < 4, q < 2), columns=(c < 8), schedule='plain', chunk=p < 2, first=first):
        total: f32 = sum(h[r * 8 + d] * (h[d * 8 + c] + 1.0) for d in range(8))
        half[r * 8 + c] = (0.0 if first else half[r * 8 + c]) + f16(total)
    barrier()
    with attention(batch=(b < 2), row=i < N, column=j < N, width=w < 8, dtype=f32, causal=True):
        score = 0.125 * sum(x[i * 8 + d] * x[j * 8 + d] for d in range(8))
        mask = i >= j
        masked = -1e+30
        v = x[j * 8 + w]
        result0: f32 = result()
        out[i * 8 + w] = result0
""".replace(" - (i0 - 3 - (i1 - 1)) % 7", " - f32((i0 - 3 - (i1 - 1)) % 7)")


@pytest.mark.parametrize("text", [*dict.fromkeys(TEXTS)], ids=lambda text: text.split("(")[0][4:])
def test_golden_texts_are_read_as_they_are_written(text):
    parsed = parse_loops(text)
    assert print_loops(parsed.sections, parsed.context) == text


def test_every_construct_is_read_as_it_is_written():
    kernel = parse_kernel(ALL)
    assert print_kernel(kernel) == ALL.rstrip()
    assert is_same(parse_kernel(print_kernel(kernel)), kernel)


@pytest.mark.parametrize(("old", "new"), [
    ("grain=max(1", "grain=max(2"), ("most=8", "most=9"), ("index[8]", "index[16]"),
    ("const(1.5, f16)", "const(1.5, f32)"), ("'take'", "'gather'"), ("causal=True", "causal=False"), ("1e+30", "1e+20"),
    ("'plain'", "'other'"), ("x: f32[N, 8]", "x: f32[N, 9]"), ("p < 2", "p < 3"), ("sizes(N, M)", "sizes(M, N)"),
    ("parallel(size", "vector(size"),
])
def test_what_is_written_otherwise_is_another_kernel(old, new):
    assert old in ALL
    assert not is_same(parse_kernel(ALL), parse_kernel(ALL.replace(old, new)))


WRONG = [
    ("        out[i0] = x[j]", "line 3: no scalar is named 'j' here"),
    ("        out[i0] = y[i0]", "line 3: no memory is named 'y'"),
    ("        out[x[i0]] = 1.0", "line 3: expected int64, found float32"),
    ("        out[i0] = x[i0] + i0", "line 3: expected float32, found int64"),
    ("        out[i0] = x[i0] + 1", "line 3: 1 is no number of type float32"),
    ("        out[i0] = x[i0] & x[i0]", "line 3: & of float32"),
    ("        out[i0] = foo(x[i0])", "line 3: no function 'foo'"),
    ("        out[i0] = exp(x[i0], x[i0])", "line 3: exp takes 1 arguments, found 2"),
    ("        out[i0] = (x[i0] if x[i0] else 1.0)", "line 3: expected bool, found float32"),
    ("        out[i0] = add(x[k] for k in range(i0))", "line 3: a loop that ends at no size says `most=`"),
    ("        out[i0] = add(x[k] for k in range(3) if k)", "line 3: expected `for index in range"),
    ("        e0 = e0 + 1.0\n        out[i0] = e0", "line 3: 'e0' stands for something that contains it"),
    ("        out[i0] = x[i0] < x[i0] < x[i0]", "line 3: no expression"),
    ("        out[i0] = x[99999999999999999999999]", "line 3: a number of more than 64 bits"),
    ("        return x", "line 3: expected `memory\\[place\\] = value`"),
    ("        out[i0] = " + "(" * 90 + "x[i0]" + ")" * 90, None),
    ("        out[i0] = " + "exp(" * 180 + "x[i0]" + ")" * 180, "nested too deeply"),
    ("        out[i0] = " + "-" * 5000 + "1.0", "is not valid|nested too deeply"),
]


@pytest.mark.parametrize(("body", "said"), WRONG, ids=[body.strip()[:40] for body, _ in WRONG])
def test_wrong_text_is_told_with_its_line(body, said):
    text = f"def f(x: f32[6]) -> (out: f32[6]):\n    with elements(i0 < 6):\n{body}"
    if said is None:
        assert parse_loops(text)
        return
    with pytest.raises(GraphError, match=said):
        parse_loops(text)


def test_names_for_expressions_that_grow_are_read_soon():
    lines = ["e0 = exp(x[i0] * 2.0 + 1.0 - 3.0)", *(f"e{k} = exp(e{k - 1} + e{k - 1}) * e{k - 1}" for k in range(1, 60)),
             "out[i0] = e59"]
    text = "def f(x: f32[6]) -> (out: f32[6]):\n    with elements(i0 < 6):\n" + "\n".join(f"        {x}" for x in lines)
    parsed = parse_loops(text)
    assert len(print_loops(parsed.sections, parsed.context)) < 8000


def test_text_that_is_cut_or_changed_anywhere_ends_in_loops_or_an_error():
    """Small here; `TENON_EXPLORE=1` has nothing to add, since the random numbers are the same ones."""
    choose, understood = random.Random(1), 0
    pieces = [*"()[]=<>:,+*%", "x", "i0", "0", "range", "0.5", "\n", "    ", "add", "most=", "f32", "if", "const", " in "]
    for text in [ALL, *TEXTS]:
        for _ in range(12):
            at, until = sorted(choose.randrange(len(text)) for _ in range(2))
            changed = text[:at] + choose.choice(pieces) + text[min(until, at + choose.randrange(6)):]
            for said in (changed, text[:at]):
                try:
                    parse_loops(said)
                    understood += 1
                except GraphError:
                    pass
    assert understood > 20


def test_passes_take_what_they_can():
    text = "def f(x: f32[6]) -> (out: f32[6]):\n    with elements(i0 < 6):\n        out[i0] = x[i0]"
    assert is_loop_text(text) and not is_loop_text("def f(x: f32[6]):\n    return x")
    with pytest.raises(TenonError, match="peeling takes nests, and there are elements"):
        list(run_on_loop_text(text, ["peeling"]))
    with pytest.raises(TenonError, match="no pass over loops named 'simplify'"):
        list(run_on_loop_text(text, ["simplify"]))
    with pytest.raises(TenonError, match="an input, is written"):
        list(run_on_loop_text(text.replace("out[i0] =", "x[i0] ="), ["group_elements", "compute_at"]))
