"""A seed -> a program with state, from tables of phrases."""

from __future__ import annotations

import random
import re
from pathlib import Path

from fuzz.stateful import container_phrases, phrases

DEEPEST, SIZE = 3, (6, 22)
PRELUDE = (Path(__file__).parent / "prelude.py").read_text(encoding="utf-8")
TABLES = phrases, container_phrases
HOLE = re.compile(r"\{(?:(new|old|last) )?(int|float|bool|tensor|list|numbers|key|count|result|block)\}")


def choices(text: str) -> list[str]:
    """The phrases of a table, which stand between bars and on lines."""
    return [phrase.strip() for line in text.strip().splitlines() for phrase in line.split(" | ")]


PHRASES = {kind: [phrase for table in TABLES for phrase in choices(table.EXPRESSIONS.get(kind, ""))] for kind in phrases.EXPRESSIONS}
SENTENCES = [sentence for table in TABLES for sentence in table.STATEMENTS.strip().split("\n---\n")]
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
            return self.random.choice([*names * 2, *phrases.CONSTANTS[kind]])
        found = self.filled(self.random.choice(PHRASES[kind]), depth + 1)
        return f"({found})" if " " in found and kind != "result" else found
