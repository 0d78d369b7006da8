"""A model as it is offered: its name, its engine, and what makes tokens of messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from abele.llm.generation.text import TextCodec
from abele.llm.serving.worker import TextEngine

if TYPE_CHECKING:
    from abele.llm.serving.step_account import StepAccount
    from abele.report import Report

Messages = Sequence[dict[str, str]]


def _none() -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A model that is offered under a name.

    Attributes:
        name: Name that clients give.
        engine: Generator of its text.
        tokenizer: Text to ids and back.
        positions: Longest sequence.
        chat: Token ids of a conversation, up to where the answer begins; None for models without a chat template.
        end_ids: Tokens that end every sequence.
        top: Most likely tokens whose log-probabilities clients may ask for.
        account: Cycles of a decode step by what they go to; None where nothing is modelled.
        report: Report of the programs; None where nothing is modelled.
        machine: Machine that is modelled, in words; empty where none is.
        created: Time of loading, in seconds since 1970.
    """

    name: str
    engine: TextEngine
    tokenizer: TextCodec
    positions: int
    chat: Callable[[Messages], Sequence[int]] | None = None
    end_ids: tuple[int, ...] = ()
    top: int = 0
    account: Callable[[], StepAccount | None] = _none
    report: Callable[[], Report | None] = _none
    machine: str = ""
    created: int = field(default_factory=lambda: int(time.time()))
