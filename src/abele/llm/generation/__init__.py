"""Generation: requests, continuous batching over pages, text as it comes."""

from abele.llm.generation.backend import Backend, DecodeCall, DecodedTokens, PrefillCall, Shape
from abele.llm.generation.events import Completion, Event, StepCost, Ticket, TokenLogprob
from abele.llm.generation.generator import Generator
from abele.llm.generation.requests import (
    GeneratorError,
    NotANumberError,
    PromptLengthError,
    Request,
    RequestError,
)
from abele.llm.generation.scheduler import Scheduler
from abele.llm.generation.speculative import Speculation
from abele.llm.generation.text import TextCodec, TextPieces

__all__ = [
    "Backend",
    "Completion",
    "DecodeCall",
    "DecodedTokens",
    "Event",
    "Generator",
    "GeneratorError",
    "NotANumberError",
    "PrefillCall",
    "PromptLengthError",
    "Request",
    "RequestError",
    "Scheduler",
    "Shape",
    "Speculation",
    "StepCost",
    "TextCodec",
    "TextPieces",
    "Ticket",
    "TokenLogprob",
]
