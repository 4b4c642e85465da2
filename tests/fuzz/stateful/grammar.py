"""A seed -> a program with state, from tables of phrases.

A hole `{int}` takes an expression of that kind, a variable or a constant; `{new int}` a variable that is new behind the
phrase, `{new count}` one that nothing else changes, so that loops end; `{block}` some statements, whose new variables end
with them.  `o` is a `Thing` of the prelude, `x` a tensor, `n` and `s` an int and a float, `flag` a bool.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

CONSTANTS = {"int": ("-2", "-1", "0", "1", "2", "4"), "float": ("0.5", "-1.25", "2.0", "1e-3", "0.0"), "tensor": ("x", "o.w"),
             "bool": ("flag", "n > 1", "o.flag"), "list": ("[x, x * 2]",), "numbers": ("[n, 2]",)}
DEEPEST, SIZE = 3, (6, 22)

EXPRESSIONS = {
    "int": """
        {int} + {int} | {int} * {int} | {int} - {int} | {int} // 3 | {int} % -2 | abs({int}) | max({int}, {int}) | int({float})
        o.count | len(o.items) | o.steps.get({key}, {int}) | o.config.k | o.net.calls | len({list}) | sum({numbers})
        {int} if {bool} else {int} | x.shape[0] | x.ndim | COUNT[0] | len(o.bag) | sum(o.queue) | o.tally[n]
        len(set(range(abs(n))) & {1, 2}) | sum(1 for t in [1, n, 3] if t > 1) | divmod(n, 2)[0] | [5, 6, 7][n % 3]
        {{0: 5, 1: 6}}.get(n, 7) | round(s * 10) | len(o.name) | (n and 2) or 1 | ~n | -n""",
    "float": """
        {float} + {float} | {float} * {float} | {float} - {float} | {int} * 0.5 | min({float}, {float}) | {float} / 4.0
        o.rate | o.prop | o.config.gain | float({int}) | math.sin({float}) | math.floor({float}) | round({float}, 1)
        {tensor}.sum().item() | float({tensor}.mean()) | {float} if {bool} else {float}""",
    "bool": """
        {int} < {int} | {int} == {int} | {float} < {float} | 0 < {int} < 5 | not {bool} | {bool} and {bool} | {bool} or {bool}
        {tensor}.sum() > {float} | ({tensor} > 0).any() | {key} in o.steps | o.memory is None | len(o.items) > 2
        isinstance({tensor}, tn.Tensor) | isinstance({int}, int) | bool({tensor}.sum() > 0) is True | "a" in o.bag""",
    "tensor": """
        {tensor} + {tensor}.mean() | {tensor} * {tensor}.sum() | {tensor} - {float} | {tensor} * {int} | {tensor} / 2
        tn.tanh({tensor}) | tn.relu({tensor}) | tn.abs({tensor}) | tn.where({tensor} > 0, {float}, {tensor}.sum())
        o.w | o.touch({tensor}) | helper({tensor}) | helper({tensor}, k={int}) | o.memory if o.memory is not None else {tensor}
        {tensor} if {bool} else {tensor} | sum(t.sum() for t in {list}) + {tensor} | o.net(x) | o.net(x, keep={bool})
        (lambda a, b={float}: a * b)({tensor}) | max({tensor}.sum(), {tensor}.mean()) | deep({tensor}, n) | final({tensor}, n)
        many(*[{tensor}, x], scale={float}, **{{"extra": {int}}}) | o.bag({tensor}, 1, scale={int}) | x[0] | x[..., 1:] | x[n:]
        max([x, {tensor}], key=lambda t: t.sum()) | [x, {tensor}][int({bool})] | {{True: x, False: {tensor}}}[flag]
        functools.reduce(lambda a, b: a + b.sum(), [x, o.w], {float}) | list(map(tn.sin, [x, {tensor}]))[n % 2]
        tn.grad(lambda z: (tn.tanh(z * {float}) * z).sum())({tensor}) | next(filter(lambda t: t.ndim > 0, [{tensor}, x]))""",
    "list": "[{tensor}] | [x] * 2 | [{tensor} * k for k in range(3) if k % 2] | [t * 2 for t in {list}] | {list}[::-1] | [*{list}, x]",
    "numbers": "[{int}, {int}] | sorted({numbers}) | [a * 2 for a in {numbers} if a > 0] | list(range(abs(n)))[:5] | [*{numbers}, n]",
    "key": "'a' | 'b' | 'c'"}

STATEMENTS = """
{new int} = {int}
---
{new float} = {float}
---
{new tensor} = {tensor}
---
{new list} = {list}
---
{new numbers} = {numbers}
---
{old int} += {int}
---
{old float} *= {float}
---
{old tensor} = {tensor}
---
o.count += {int}
---
o.count = {int}
---
o.rate = {float}
---
o.memory = {tensor}
---
o.memory = None
---
o.flag = {bool}
---
o.prop = {float}
---
o.items.append({int})
if len(o.items) > 3: o.items.pop(0)
---
if {bool}: o.items.append({tensor})
{new int} = len(o.items)
---
o.items = o.items[-2:]
---
o.steps[{key}] = {int}
---
o.steps.pop({key}, None)
---
o.steps = {{k: v + 1 for k, v in o.steps.items()}}
---
o.bag[n] = {float}
---
o.config.k += 1
---
o.config = dataclasses.replace(o.config, k={int})
---
o.pair = Pair({tensor}, {int})
---
o.queue.append({int})
o.tally[n] += 1
---
COUNT[0] += 1
bump()
---
o.net.train({bool})
---
o.net.hidden = None
---
o.name = f\"\"\"step{{{int}}}\"\"\"
---
o.name = "-".join(map(str, [n, {int}]))
---
print("n", {int}, f\"\"\"{{{float}:.2f}}\"\"\", o.count)
---
print("t", {tensor}.sum())
---
type(o).scale = {float}
---
{new tensor} = x * 1.0
{last tensor}[0] = {float}
---
{new tensor} = {tensor}
{last tensor} += 1.0
---
{new tensor} = x.reshape(-1) * 1.0
{last tensor}[{last tensor} > 0] = {float}
---
o.total += {tensor}.sum().detach()
---
o.opt.zero_grad()
(o.p * {tensor}.detach().mean() + o.p ** 2).sum().backward()
o.opt.step()
---
for group in o.opt.param_groups: group["lr"] *= 0.9
---
def inner(a, b={float}):
    if {bool}: return a * b
    return a + o.rate
{new tensor} = inner({tensor})
---
{new tensor} = x.sum()
for each in walk({tensor}, n): {last tensor} = {last tensor} + each.sum()
---
if {bool}:
    {block}
---
if {bool}:
    {block}
else:
    {block}
---
if {bool}: return {result}
---
for i in range({int}):
    if i > 3: break
    {block}
---
for k, i in enumerate([{int}, {int}]):
    {block}
---
for each in {list}:
    {block}
---
for each in x:
    {block}
---
for key, i in sorted(o.steps.items()):
    {block}
---
{new count} = 0
while {last count} < 3 and ({bool}):
    {last count} += 1
    {block}
---
try:
    {block}
    if {bool}: raise ValueError(n)
except ValueError:
    {block}
else:
    {block}
---
{new tensor} = x
try:
    {last tensor} = risky({tensor}, {int})
except Odd as problem:
    o.name = str(problem)
finally:
    o.count += 1
---
with Scope(o):
    {block}
---
with faster(o):
    {block}
---
with tn.no_grad():
    {block}
---
match ({int}, flag):
    case (0, _):
        {block}
    case (k, True) if k > 1:
        {block}
    case _:
        {block}
---
match {int}:
    case 0 | 1:
        {block}
    case int() as k:
        {block}
"""

RESULTS = "{tensor} | ({tensor}, {int}) | {{'t': {tensor}, 'n': {float}}} | Pair({tensor}, o.count) | [{tensor}, {bool}] | None | o.memory"
PRELUDE = (Path(__file__).parent / "prelude.py").read_text(encoding="utf-8")
HOLE = re.compile(r"\{(?:(new|old|last) )?(int|float|bool|tensor|list|numbers|key|count|result|block)\}")


def choices(text: str) -> list[str]:
    """The phrases of a table, which stand between bars and on lines."""
    return [phrase.strip() for line in text.strip().splitlines() for phrase in line.split(" | ")]


PHRASES = {kind: choices(text) for kind, text in EXPRESSIONS.items()} | {"result": choices(RESULTS)}
SENTENCES = STATEMENTS.strip().split("\n---\n")
FLAT = [sentence for sentence in SENTENCES if "{block}" not in sentence]


class Grammar:
    """What makes one program."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.variables: dict[str, str] = {"n": "int", "s": "float", "x": "tensor"}
        self.made = 0
        self.left = self.random.randint(*SIZE)
        chosen = self.random.sample(SENTENCES, len(SENTENCES) // 2)     # swarm testing: each program has half of them
        self.sentences = [*chosen, *FLAT[:8]]

    def program(self) -> str:
        """The source: the prelude, and a function of `(o, x, n, s, flag)`."""
        lines = []
        while self.left > 0:
            lines += self.sentence(1)
        lines.append(f"return {self.filled('{result}', 0)}")
        return f"{PRELUDE}\n\ndef program(o, x, n, s, flag):\n" + "".join(f"    {line}\n" for line in lines)

    def sentence(self, depth: int) -> list[str]:
        """The lines of one statement."""
        self.left -= 1
        text = self.random.choice(FLAT if depth > DEEPEST or self.left <= 0 else self.sentences)
        before, lines = dict(self.variables), []
        for line in text.splitlines():
            indent = line[:len(line) - len(line.lstrip())]
            if line.strip() == "{block}":
                inside = dict(self.variables)
                lines += [indent + x for _ in range(self.random.randint(1, 3)) for x in self.sentence(depth + 1)]
                self.variables = inside
            else:
                lines.append(self.filled(line, 0))
        if "{block}" in text:
            self.variables = before
        return lines

    def filled(self, text: str, depth: int) -> str:
        """The text with its holes filled from the right, so that a new variable is not read where it is made."""
        fresh: list[tuple[str, str]] = []

        def fill(match: re.Match[str]) -> str:
            how, kind = match.groups()
            if how == "new":
                self.made += 1
                fresh.append((f"{kind[0]}{self.made}", kind))
                return fresh[-1][0]
            if how == "last":
                return next(name for name in reversed(self.variables) if self.variables[name] == kind)
            if how == "old":
                own = [name for name, other in self.variables.items() if other == kind and name not in ("x", "n", "s")]
                return self.random.choice(own) if own else {"int": "o.count", "float": "o.rate", "tensor": "o.memory"}[kind]
            return self.expression(kind, depth)
        found = HOLE.sub(fill, text).replace("{{", "{").replace("}}", "}") if depth == 0 else HOLE.sub(fill, text)
        self.variables.update(fresh)
        return found

    def expression(self, kind: str, depth: int) -> str:
        """An expression of a kind: a variable, a constant, or a phrase with holes of its own."""
        names = [name for name, other in self.variables.items() if other == kind]
        if kind not in ("result", "key") and (depth >= DEEPEST or self.random.random() < 0.35):
            return self.random.choice([*names * 2, *CONSTANTS[kind]])
        found = self.filled(self.random.choice(PHRASES[kind]), depth + 1)
        return f"({found})" if " " in found and kind != "result" else found
