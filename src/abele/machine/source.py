"""Sources of machine constants, and how sure one can be of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

CONFIDENCE = {
    "S": "stated by the source",
    "D": "derived by arithmetic from stated facts",
    "C": "calibrated on measurements that are named",
    "M": "measured for this project; the source says on what",
    "G": "guessed",
    "U": "given by the user",
}
_CALIBRATED_ON = " · calibrated on "


@dataclass(frozen=True)
class Source:
    """Origin of a constant.

    Attributes:
        text: The publication, program or measurement, with the arithmetic where the value was derived.
        confidence: ``S`` stated, ``D`` derived, ``C`` calibrated, ``M`` measured,
            ``G`` guessed, ``U`` given by the user.
        calibrated_on: The comparisons that the value was made to agree with, each as :func:`calibrated` says; they can
            say nothing about it any more.
    """

    text: str
    confidence: str
    calibrated_on: tuple[str, ...] = ()

    def written(self) -> str:
        """The source as one text, which :meth:`read` takes: ``S: data sheet``."""
        return f"{self.confidence}: {_CALIBRATED_ON.join((self.text, *self.calibrated_on))}"

    @classmethod
    def read(cls, text: object) -> Source | None:
        """The source that a text is; None if it is none."""
        confidence, colon, words = text.partition(": ") if isinstance(text, str) else ("", "", "")
        what, *on = words.split(_CALIBRATED_ON)
        return cls(what, confidence, tuple(on)) if colon and confidence in CONFIDENCE else None


@dataclass(frozen=True)
class Cited:
    """A value together with its source, as presets are written."""

    value: Any
    source: Source


def stated(value: Any, text: str) -> Cited:
    """``value`` as the source states it."""
    return Cited(value, Source(text, "S"))


def derived(value: Any, text: str) -> Cited:
    """``value`` computed from stated facts; ``text`` shows how."""
    return Cited(value, Source(text, "D"))


def calibrated(value: Any, text: str, *, on: tuple[str, ...]) -> Cited:
    """``value`` chosen so that the model agrees with measurements; ``text`` shows the arithmetic.

    Args:
        value: The constant.
        text: Origin of the measurements, and the arithmetic.
        on: These measurements in the validation, each ``KEY: NAME`` with the key of a comparison and the name of a
            figure in it. The page marks them.
    """
    return Cited(value, Source(text, "C", on))


def measured(value: Any, text: str) -> Cited:
    """Constant ``value`` as measured for this project; ``text`` names the host, and the error on other hosts."""
    return Cited(value, Source(text, "M"))


def guessed(value: Any, text: str) -> Cited:
    """Constant ``value`` without a source; ``text`` gives the basis of the guess."""
    return Cited(value, Source(text, "G"))


def constant(cited: Cited, *, minimum: float | None = None) -> Any:
    """A dataclass field whose default is ``cited.value``, the same on every chip of the family.

    Args:
        cited: Default and its source.
        minimum: Smallest allowed value; by default a number must be above zero.
    """
    return field(default=cited.value, metadata={"source": cited.source, "minimum": minimum})


def parameter(*, minimum: float | None = None) -> Any:
    """A dataclass field that each preset gives with its own source."""
    return field(metadata={"minimum": minimum})


def part(kind: type[Any], *, optional: bool = False, default: bool = False) -> Any:
    """A dataclass field that holds another part, or a tuple of them.

    Args:
        kind: Class of the part.
        optional: The part may be absent, and is by default.
        default: The default is the part with its own defaults.
    """
    metadata = {"kind": kind}
    if default:
        return field(default_factory=kind, metadata=metadata)
    return field(default=None, metadata=metadata) if optional else field(metadata=metadata)


def cite(kind: Callable[..., T], **values: Any) -> T:
    """A ``kind`` with plain values and :class:`Cited` ones; it remembers the sources of the latter."""
    sources = {name: value for name, value in values.items() if isinstance(value, Cited)}
    plain = {name: value.value if isinstance(value, Cited) else value for name, value in values.items()}
    return kind(**plain, cited=sources)
