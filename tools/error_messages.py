"""What Tenon, PyTorch and JAX say of the mistakes in tests/robustness -> docs/error_messages.md, which compares them.

    python tools/error_messages.py                                          # writes the page, from what others said
    python tools/error_messages.py --torch PYTHON --jax PYTHON              # asks them again, with these interpreters
    python tools/error_messages.py --ask torch                              # what one says, as JSON

JAX needs an environment with `pip install jax flax optax`.  What a message tells is found by the words and numbers of
tests/robustness/mistakes_compared.txt, the same for all three.
"""

from __future__ import annotations

import argparse
import json
import re
import runpy
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
TABLES = ROOT / "tests" / "robustness"
OTHERS = TABLES / "messages_of_others.json"
PAGE = ROOT / "docs" / "error_messages.md"
MARKS = {"op": "o", "names": "n", "facts": "f", "line": "l", "mend": "m"}
# What says how to mend it: a suggestion, or what would be accepted.
MENDS = re.compile(
    r"hint: |did you mean|maybe you wanted|\buse\b|\bset\b|specify|please|if this is the desired|"
    r"(must|should|has to|have to|expected to|expects|expected|requires?|only|accepted|valid)\b.{0,40}"
    r"\b(be|in|between|from|less|non|one|integers?|integer types?|float\w*|real|have|are|of|dtype|shape|input|a|to)\b",
    re.IGNORECASE | re.DOTALL)
MAX_LETTERS = 320


class Mistake(NamedTuple):
    """A row of the tables: the line with each library, and what a message about it has to tell."""

    tenon: str
    torch: str
    jax: str
    op: tuple[str, ...]
    facts: tuple[tuple[str, ...], ...]


def mistakes() -> list[Mistake]:
    ours = runpy.run_path(str(TABLES / "user_mistakes.py"))["ROWS"]
    lines = (TABLES / "mistakes_compared.txt").read_text(encoding="utf-8").splitlines()
    compared = {row[0]: row for row in (split_row(line) for line in lines if not line.startswith("# "))}
    if set(compared) != {code for code, _, _ in ours}:
        raise SystemExit(f"the tables differ in {set(compared) ^ {code for code, _, _ in ours}}")
    return [Mistake(code, torch, jax, alternatives(op), tuple(map(alternatives, filter(None, facts.split("; ")))))
            for code, _, torch in ours for _, jax, op, facts in [compared[code]]]


def split_row(line: str) -> list[str]:
    parts = line.rstrip().removesuffix(" |").split(" | ")
    return [part.strip() for part in [*parts, ""][:4]]


def alternatives(words: str) -> tuple[str, ...]:
    return tuple(words.strip().split("/"))


# ------------------------------------------------------------------ asking a library


def scope_of(library: str) -> dict[str, Any]:
    """What the lines of a library may name; the libraries are those of the environment that runs this."""
    made = runpy.run_path(str(TABLES / "user_mistakes.py"))["names"]
    if library == "tenon":
        import tenon as tn

        return {"tn": tn, "nn": tn.nn, "optim": tn.optim, "F": tn.nn.functional, **made(tn)}
    if library == "torch":
        import torch

        return {"torch": torch, **made(torch)}
    import jax
    import jax.numpy as jnp
    import optax
    from flax import nnx

    rngs = nnx.Rngs(0)
    return {"jax": jax, "jnp": jnp, "optax": optax, "nnx": nnx, "R": rngs, "K": jax.random.key(0),
            "X": jnp.ones((2, 3)), "Y": jnp.ones((4, 5)), "I": jnp.array([0, 1]), "P": jnp.ones((2, 3)),
            "N": nnx.Linear(3, 2, rngs=rngs)}


def said(library: str) -> list[dict[str, Any] | None]:
    """What the library answers to each mistake: its message, and whether the traceback ends at the user's line."""
    error_of: Callable[..., Exception | None] = runpy.run_path(str(TABLES / "user_mistakes.py"))["error_of"]
    answers: list[dict[str, Any] | None] = []
    for number, mistake in enumerate(mistakes()):
        code = getattr(mistake, library)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            error = error_of(code, scope_of(library), number) if code != "-" else None
        answers.append(None if code == "-" else {"error": ""} if error is None else
                       {"error": type(error).__name__, "message": str(error).strip(), "line": ends_at_the_line(error)})
    return answers


def ends_at_the_line(error: Exception) -> bool:
    """Whether the last frame that an uncaught error prints is the user's."""
    shown = error.__traceback__
    if type(error).__module__.startswith("tenon"):
        from tenon.tracebacks import shortened

        shown = shortened(shown)
    last = traceback.extract_tb(shown)[-1].filename
    return last.startswith("mistake_") or last.endswith("user_mistakes.py")


# ------------------------------------------------------------------ judging


def tells(mistake: Mistake, code: str, answer: dict[str, Any]) -> set[str]:
    """Which of the five things a message tells."""
    message = answer["message"]
    body = without_the_line(message)
    found = {"op"} if any(word.lower() in body.lower() for word in mistake.op) else set()
    named = set(re.findall(r"\b(?:[XYINP]|P2)\b", code))
    if within := re.search(r"lambda ([\w, ]+):", code):      # the line that fails is in there
        named = set(within[1].split(", ")) if re.search(r"^\s*with: [a-z]", body, re.MULTILINE) else named
    found |= {"names"} if all(re.search(rf"\b{name}\b(?: is|:) ", body) for name in named) else set()
    found |= {"facts"} if all(any(is_in(fact, body) for fact in way) for way in mistake.facts) else set()
    found |= {"line"} if answer["line"] else set()
    return found | ({"mend"} if MENDS.search(body) else set())


def without_the_line(message: str) -> str:
    """A message of Tenon's quotes the line, whose words are not what the message tells."""
    return "\n".join(row for row in message.splitlines() if not re.match(r"  \S+\.py:\d+|\s*\^+$", row))


def is_in(fact: str, message: str) -> bool:
    """Whether a shape (in any notation), a number or a word is in a message."""
    if re.fullmatch(r"\[?-?\d+(, -?\d+)*\]?", fact) and "," in fact:
        return re.search(r"\s*[x, ]\s*".join(re.findall(r"-?\d+", fact)), message) is not None
    if re.fullmatch(r"\[\d+\]", fact):
        return re.search(rf"[\[(]{fact[1:-1]},?[\])]", message) is not None
    if re.fullmatch(r"-?[\d.]+", fact):
        return re.search(rf"(?<![\d.]){re.escape(fact)}(?![\d])", message) is not None
    return fact.lower() in message.lower()


def verdict(ours: set[str], theirs: set[str] | None) -> str:
    """Better tells all that the other tells, and more; worse is whatever lacks something that the other tells."""
    return "better" if theirs is None or ours > theirs else "same" if ours == theirs else "worse"


# ------------------------------------------------------------------ the page

HEAD = """# Error messages

<!-- written by tools/error_messages.py; do not edit -->

{count} mistakes that users make, each run with Tenon, PyTorch {torch} and JAX {jax} (with Flax and Optax), and what
each of them says. `X` is a tensor of shape [2, 3], `Y` one of [4, 5], `I` holds whole numbers, `N` is a linear layer
of 3 to 2 features, `P` and `P2` require gradients. What a message tells is looked for in the same way for all:

| mark | the message tells |
|---|---|
| o | which operation it was, in words of the user's call |
| n | what the variables in the line are: their names with their types |
| f | all shapes, types or values that do not fit |
| l | the user's line: it is where the printed traceback ends |
| m | how to mend it, or what would have been accepted |

A message is better than another if it tells all that the other tells, and more; it is worse if the other tells
something that it does not. Going on with a wrong result, or none, is worse than any message.

| Tenon's message is | better | the same | worse | the other one goes on | no such thing there |
|---|--:|--:|--:|--:|--:|
{counts}

Whether words are good ones cannot be counted so; the messages are below. `-` stands where a library has no such thing,
*no error* where it goes on.

| the line | Tenon | PyTorch | JAX |
|---|---|---|---|
{rows}
"""


def page(tenon: list[Any], others: dict[str, Any]) -> str:
    tallies = {name: {"better": 0, "same": 0, "worse": 0, "silent": 0, "none": 0} for name in ("torch", "jax")}
    rows = []
    for number, mistake in enumerate(mistakes()):
        ours = tells(mistake, mistake.tenon, tenon[number])
        cells = [cell(tenon[number], ours, "")]
        for name, tally in tallies.items():
            answer = others[name]["said"][number]
            theirs = tells(mistake, getattr(mistake, name), answer) if answer and answer["error"] else None
            judged = verdict(ours, theirs) if answer else "none"
            tally[judged] += 1
            tally["silent"] += answer is not None and not answer["error"]
            cells.append(cell(answer, theirs, judged))
        rows.append(f"| {code(mistake.tenon)} | {' | '.join(cells)} |")
    counts = "\n".join(f"| than {title}'s | {' | '.join(str(tallies[name][k]) for k in tallies[name])} |"
                       for name, title in (("torch", "PyTorch"), ("jax", "JAX")))
    return HEAD.format(count=len(rows), torch=others["torch"]["version"], jax=others["jax"]["version"],
                       counts=counts, rows="\n".join(rows))


def cell(answer: dict[str, Any] | None, told: set[str] | None, judged: str) -> str:
    if answer is None:
        return "-"
    if told is None:
        return "*no error*"
    marks = "".join(letter for word, letter in MARKS.items() if word in told) or "nothing"
    rows = without_the_line(answer["message"]).splitlines()
    words = [code(shortened_text(row.strip())) for row in rows if row.strip()]
    note = f" (Tenon's is {judged})" if judged in ("same", "worse") else ""
    return f"**{marks}**{note} " + "<br>".join(words[:6])


def shortened_text(text: str) -> str:
    return text if len(text) <= MAX_LETTERS else text[:MAX_LETTERS] + " ..."


def code(text: str) -> str:
    """Text as code in a cell of a table, where a bar has to be told from the cell's end."""
    fence = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def ask(library: str, python: str) -> dict[str, Any]:
    """What a library says, asked in a process of another environment."""
    found = subprocess.run([python, __file__, "--ask", library], capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return answer


def version(library: str) -> str:
    return str(__import__(library).__version__).partition("+")[0]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ask", choices=("tenon", "torch", "jax"))
    parser.add_argument("--torch", metavar="PYTHON")
    parser.add_argument("--jax", metavar="PYTHON")
    asked = parser.parse_args(arguments)
    if asked.ask:
        print(json.dumps({"version": version(asked.ask), "said": said(asked.ask)}))
        return
    others = json.loads(OTHERS.read_text(encoding="utf-8")) if OTHERS.exists() else {}
    others |= {name: ask(name, python) for name in ("torch", "jax") if (python := getattr(asked, name))}
    OTHERS.write_text(json.dumps(others, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(said("tenon"), others), encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main(sys.argv[1:])
