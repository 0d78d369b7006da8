"""The answers that a static page takes along: those that say most first, until its size is used up.

Questions name with ``frozen`` which of their answers a page without a server should hold, coarse before fine, and with
``rank`` how much they matter. Answers are packed as the server packs them, under the addresses that the page asks.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any
from urllib.parse import quote

from abele.errors import AbeleError
from abele.viewer.answers import QUESTIONS, Question
from abele.viewer.opened import Opened, Shelf, readable, unexpected
from abele.viewer.params import Params
from abele.viewer.wire import pack

_LEVEL = 6
"""Of compression: 9 takes three times as long for one byte in a hundred."""


_FIRST_ANSWERS, _FIRST_PART = 48, 1 / 12
"""What each question gets before any gets more: so many answers about a report, and so much of the room."""


@dataclass
class Frozen:
    """What a static page knows.

    Attributes:
        answers: Packed answers in base64, or what kept a question from being answered, by address.
        left: Questions of which some answers, or all, are left out, with the reason: ``size`` or ``server``.
        size: Characters that the answers take in the page.
    """

    answers: dict[str, Any] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    size: int = 0

    def take(self, place: str, packed: Any, most: float) -> bool:
        """Take an answer along; False where it has no room in ``most`` characters."""
        if place in self.answers:
            return True
        size = len(json.dumps(place)) + len(json.dumps(packed)) + 4
        if self.size + size > most:
            return False
        self.answers[place] = packed
        self.size += size
        return True


def frozen(shelf: Shelf, most_bytes: int) -> Frozen:
    """The answers about some reports that fit into so many bytes of a page.

    First each question gets a little, so that every view has something to show; then those with a low rank get all.

    Args:
        shelf: The reports.
        most_bytes: What the answers and their addresses may take.
    """
    found = Frozen()
    ranked = sorted(QUESTIONS.values(), key=lambda question: question.rank)
    found.left = {question.name: "server" for question in ranked if question.frozen is None}
    rest: list[tuple[Question, Iterator[tuple[str, Any]]]] = []
    for question in ranked:
        for opened in shelf:
            if question.frozen is None:
                continue
            answers = _answers(question, opened)
            limit = min(found.size + most_bytes * _FIRST_PART / len(shelf), most_bytes)
            later = [answer for answer in islice(answers, _FIRST_ANSWERS) if not found.take(*answer, limit)]
            rest.append((question, chain(later, answers)))
    for question, answers in rest:
        if not all(found.take(*answer, most_bytes) for answer in answers):
            found.left[question.name] = "size"
    return found


def _answers(question: Question, opened: Opened) -> Iterator[tuple[str, Any]]:
    """Addresses and answers to a question, coarse before fine."""
    for params in _wanted(question, opened):
        yield address(opened.key, question.name, params), _packed(question, opened, params)


def _wanted(question: Question, opened: Opened) -> Iterator[Mapping[str, str]]:
    assert question.frozen is not None
    try:
        yield from question.frozen(opened)
    except AbeleError:
        # The part of the file that says which answers there are is damaged; asking says so.
        yield {}


def _packed(question: Question, opened: Opened, params: Mapping[str, str]) -> Any:
    try:
        packed = pack(question.answer(opened, Params(params)))
    except AbeleError as error:
        return readable(error)
    except Exception as error:
        return unexpected(error)
    return base64.b64encode(gzip.compress(packed, _LEVEL, mtime=0)).decode()


def address(key: str, name: str, params: Mapping[str, str]) -> str:
    """What the page calls a question: as ``address`` in ``core/source.js`` writes it.

    Args:
        key: Of the report.
        name: Of the question.
        params: Its parameters; those without a value are left out.
    """
    given = "&".join(f"{_form(k)}={_form(str(v))}" for k, v in sorted(params.items()) if v not in ("", None))
    return f"{key}/{name}?{given}" if given else f"{key}/{name}"


def _form(text: str) -> str:
    """A name or value as browsers write it in a query: the form of application/x-www-form-urlencoded."""
    return quote(text, safe="*-._ ", errors="replace").replace("~", "%7E").replace(" ", "+")
