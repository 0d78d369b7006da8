"""The questions that a page may ask of reports, by name; modules beside this one answer them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from abele.errors import InvalidOptionError, nearest
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer

Frozen = Iterator[Mapping[str, str]]
"""Parameters of the questions that a static page takes along."""


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        name: Its name in addresses.
        answer: Answers it for a report.
        frozen: Parameters with which a static page takes its answers along; the page must ask with the same ones.
            None: the static page does without.
        rank: Those with a low rank are taken along first, as far as the size of the page allows.
    """

    name: str
    answer: Callable[[Opened, Params], Answer]
    frozen: Callable[[Opened], Frozen] | None = None
    rank: int = 5


QUESTIONS: dict[str, Question] = {}
"""All questions by name."""

Answerer = Callable[[Opened, Params], Answer]


def question(
    name: str, *, frozen: Callable[[Opened], Frozen] | None = None, rank: int = 5
) -> Callable[[Answerer], Answerer]:
    """Register a function that answers the question ``name``."""

    def register(answer: Answerer) -> Answerer:
        QUESTIONS[name] = Question(name, answer, frozen, rank)
        return answer

    return register


def once(opened: Opened) -> Frozen:
    """Frozen without parameters: the question has one answer."""
    del opened
    yield {}


def answer(opened: Opened, name: str, params: Params) -> Answer:
    """The answer to a question.

    Raises:
        InvalidOptionError: There is no such question, or its parameters are wrong.
    """
    if name not in QUESTIONS:
        close = nearest(name, QUESTIONS)
        raise InvalidOptionError(
            f"there is no question {name[:60]!r}", remedy=f"did you mean {close!r}?" if close else None
        )
    return QUESTIONS[name].answer(opened, params)
