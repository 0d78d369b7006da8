"""The English of docstrings: first words, length, relative clauses, rates, and examples in long texts.

Run it as a script for the counts by room, or with a room's name for the places:

    python tests/docs/test_english.py
    python tests/docs/test_english.py packing

Six rules, each of which reads the text alone:

- ``first word``: the first line of a docstring names a quantity or an effect; it does not begin with a question's
  word such as "What" or "Whether".
- ``length``: a sentence of the first line has at most 25 words. What is quoted is one word.
- ``entry``: an argument or attribute does not begin with a question's word either ("num: How many.").
- ``clauses``: a sentence of the first line has at most one relative clause. Counted inside a sentence are "which",
  "who", "whose" and "that", except "that" behind the words of `NO_CLAUSE_AFTER`: there it introduces a statement
  ("says that", "so that") or points at something ("of that"). "where" is not counted: it is mostly a condition.
- ``rate``: ``bytes a tile`` is written "bytes per tile", for the pairs of `COUNTED` and `DIVISORS`.
- ``example``: a module's text over eight lines has an example: a number, or a block of code.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "abele"
OTHERS = ("benchmarks", "docs", "examples", "tests")
"""Folders beside the package that are read too, each as one room."""

QUESTIONS = frozenset({"how", "what", "when", "where", "whether", "which", "who", "whose"})
MOST_WORDS = 25
MOST_CLAUSES = 1
LONG_MODULE_LINES = 8


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NO_CLAUSE_AFTER = _words(
    """
    a about after all and as assumes at because before besides but by check checks ensure ensures except explains
    find finds for found from given if in into is know known knows like mean means of on or out over prove proved
    proves provided say saying says see sees show shown shows so such suppose tell telling tells than the then to
    under until upon when while with without
    """
)
"""Words behind which "that" is a conjunction or points at something."""

COUNTED = _words(
    """
    allocations batches billions bits bytes calls clocks copies counts cycles elements fields flops instructions
    iterations joules kB kilobytes MB megabytes messages microseconds milliseconds minutes nanoseconds operands rows
    samples seconds sequences slots steps tokens updates values vertices watts weights words workers
    bit byte call clock copy cycle element field instruction message sample second slot token value vertex weight word
    """
)
DIVISORS = _words(
    """
    batch block byte call channel column core cycle element epoch exchange group head host image input instruction
    ipu item lane layer line message microbatch micro-batch output pack partition pass pixel position process rank
    replica row run sample second sequence slot stage step superstep thread tile token update vector vertex word worker
    """
)
RATE = re.compile(rf"\b({'|'.join(sorted(COUNTED))}) an? ({'|'.join(sorted(DIVISORS))})\b(?!-)", re.IGNORECASE)

_QUOTED = re.compile(r"``.+?``|`.+?`|\"[^\"]{1,40}\"", re.DOTALL)
_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+")
_ENTRY = re.compile(
    rf"^ +(?!Model:)[*]*\w+(?:, [*]*\w+)*: (?:{'|'.join(sorted(QUESTIONS))})\b.*$", re.IGNORECASE | re.MULTILINE
)
_EXAMPLE = re.compile(r"(?<![\w.-])\d|::\n|```|>>>")
_WORD = re.compile(r"[^\W\d_][\w'’-]*|\d[\d.,]*")


class Finding(NamedTuple):
    """One place that a rule objects to."""

    path: Path
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


def _first_line(text: str) -> str:
    """Opening paragraph of a docstring on one line."""
    return " ".join(re.split(r"\n\s*\n", text.strip(), maxsplit=1)[0].split())


def _clauses(sentence: str) -> int:
    words = [word.lower() for word in _WORD.findall(sentence)]
    return sum(
        word in ("which", "who", "whose") or (word == "that" and before not in NO_CLAUSE_AFTER)
        for before, word in itertools.pairwise(words)
    )


def _objections(text: str, *, is_module: bool = False) -> Iterator[tuple[str, str]]:
    """Rules that a docstring breaks, each with the words at fault."""
    if not text.strip():
        return
    plain = _QUOTED.sub("code", text)
    first = _first_line(plain)
    opening = _WORD.match(first)
    if opening and opening.group().lower() in QUESTIONS and not first.startswith(":", opening.end()):
        yield "first word", _first_line(text)
    for sentence in _SENTENCE_END.split(first):
        if (length := len(_WORD.findall(sentence))) > MOST_WORDS:
            yield "length", f"{length} words: {sentence}"
        if (clauses := _clauses(sentence)) > MOST_CLAUSES:
            yield "clauses", f"{clauses} relative clauses: {sentence}"
    for entry in _ENTRY.finditer(text):
        yield "entry", entry[0].strip()
    for rate in RATE.finditer(" ".join(plain.split())):
        yield "rate", f"{rate.group()!r}: {rate[1]} per {rate[2]}"
    if is_module and len(text.strip().splitlines()) > LONG_MODULE_LINES and not _EXAMPLE.search(text):
        yield "example", _first_line(text)


def _docstrings(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
) -> Iterator[tuple[int, str, bool]]:
    """Line, text and kind (True for a module's) of every docstring, those below attributes too."""
    before: ast.stmt | None = None
    for statement in node.body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docstrings(statement)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            is_docstring = before is None or isinstance(before, ast.Assign | ast.AnnAssign)
            if is_docstring and isinstance(text := statement.value.value, str):
                yield statement.lineno, text, isinstance(node, ast.Module) and before is None
        before = statement


def findings_of(source: str | bytes, path: Path) -> list[Finding]:
    """Objections to the docstrings of one file."""
    return [
        Finding(path, line, rule, text)
        for line, docstring, is_module in _docstrings(ast.parse(source))
        for rule, text in _objections(docstring, is_module=is_module)
    ]


@functools.cache
def _rooms() -> dict[str, list[Path]]:
    """Python files by room: packages of the product, its modules by their names, and the folders beside it."""
    rooms: dict[str, list[Path]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        rooms.setdefault(path.relative_to(SOURCES).parts[0].removesuffix(".py"), []).append(path)
    for name in OTHERS:
        rooms[name] = sorted((ROOT / name).rglob("*.py"))
    return rooms


def findings_in(paths: list[Path]) -> list[Finding]:
    """Objections to the docstrings of several files, with paths from the root."""
    return [f for path in paths for f in findings_of(path.read_bytes(), path.relative_to(ROOT))]


@pytest.mark.parametrize("room", sorted(_rooms()))
def test_docstrings__of_a_room__keep_the_rules(room: str) -> None:
    findings = findings_in(_rooms()[room])
    assert not findings, "\n".join(map(str, findings))


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("Bytes that each tile receives.", []),
        ("What each tile receives.", ["first word"]),
        ("  whether it fits.", ["first word"]),
        ("Whole tiles.", []),
        ("where: the step at hand, as a command's help.", []),
        ("Tiles of the IPU, " + "and more of them " * 6 + "still.", ["length"]),
        ("Tiles of the IPU: " + "and more of them " * 6 + "still.", []),
        ("Tiles that hold what `f(a, b, c)` makes and which no other reads.", ["clauses"]),
        ("Tiles such that the error says that no other reads what is said of that.", []),
        ("Cost in bytes.\n\nIt takes eight bytes a\ncycle, and four bytes per lane.", ["rate"]),
        ("Moves bytes a step-wise reader takes.", []),
        ("Sums.\n\nArgs:\n    num, rest: How many.\n    most: Number of them.\n        Where none is, 0.", ["entry"]),
    ],
)
def test_rules__made_up_docstrings__object_where_they_should(text: str, rules: list[str]) -> None:
    source = f"def f():\n    {text!r}\n\nclass C:\n    a = 1\n    {text!r}\n"
    assert [f.rule for f in findings_of(source, Path("made_up.py"))] == rules * 2


@pytest.mark.parametrize(
    "source",
    [
        b'\xef\xbb\xbfdef f():\n    """What it is."""\n',
        b'def f():\r\n\t"""What\r\n\tit is."""\r\n',
        b'# coding: latin-1\ndef f():\n    """What \xe9t\xe9 is."""\n',
        'def f():\n    """Whether ⟂ 漢字 \u2028 \u00a0 it is."""\n'.encode(),
        b"x = 1\n" * 10_000 + b'def f():\n    """What it is."""\n',
    ],
    ids=["byte order mark", "CRLF and tabs", "latin-1", "unicode", "10,000 lines"],
)
def test_rules__file_of_any_encoding_line_end_or_length__is_read(source: bytes) -> None:
    assert [f.rule for f in findings_of(source, Path("hostile.py"))] == ["first word"]


def test_rules__long_text_of_a_module__wants_an_example() -> None:
    long = "Tiles in order.\n\n" + "They are listed.\n" * 9
    assert [f.rule for f in findings_of(f'"""{long}"""', Path("long.py"))] == ["example"]
    assert findings_of(f'"""{long}Of 1,472 tiles, the first.\n"""', Path("long.py")) == []
    assert findings_of(f'"""{long}"""'.replace("They are listed.\n" * 9, "They are listed.\n"), Path("short.py")) == []


def _main(names: list[str]) -> None:
    """Print the counts by room, or the places in the rooms named."""
    rooms = _rooms()
    if unknown := set(names) - set(rooms):
        sys.exit(f"no such room: {', '.join(sorted(unknown))}; there are {', '.join(rooms)}")
    if names:
        print(*(str(f) for name in names for f in findings_in(rooms[name])), sep="\n")
        return
    rules = ["first word", "length", "clauses", "entry", "rate", "example"]
    print(f"{'':14}" + "".join(f"{rule:>12}" for rule in rules))
    total: Counter[str] = Counter()
    for name, paths in rooms.items():
        if counts := Counter(f.rule for f in findings_in(paths)):
            total += counts
            print(f"{name:14}" + "".join(f"{counts[rule]:12,}" for rule in rules))
    print(f"{'all':14}" + "".join(f"{total[rule]:12,}" for rule in rules))


if __name__ == "__main__":
    _main(sys.argv[1:])
