"""Base of the parts of a machine description, which check itself, be varied, and name its sources."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import cache
from typing import Any, Self, cast

from abele.errors import MachineError, nearest
from abele.machine.source import CONFIDENCE, Cited, Source

_UNITS = (
    ("_bytes_per_second", "B/s"),
    ("_bytes_per_cycle", "B/cycle"),
    ("_cycles_per_kib", "cycles/KiB"),
    ("_joules_per_flop", "J/flop"),
    ("_joules_per_byte_millimetre", "J/B/mm"),
    ("_joules_per_byte", "J/B"),
    ("_millimetres", "mm"),
    ("_bytes", "B"),
    ("_cycles", "cycles"),
    ("_seconds", "s"),
    ("_hz", "Hz"),
    ("_watts", "W"),
    ("_proportion", "of 1"),
)


@dataclass(frozen=True)
class MachineConstant:
    """One constant of a machine.

    Attributes:
        path: Dotted name, as in ``ipu.exchange.bytes_per_cycle``.
        value: Its value in ``unit``.
        unit: Unit; empty for counts and names.
        source: Source of the value.
        meaning: Meaning, from its class.
    """

    path: str
    value: Any
    unit: str
    source: Source
    meaning: str = ""

    @property
    def text(self) -> str:
        """Value and unit for people."""
        value = f"{self.value:,}" if isinstance(self.value, int) else f"{self.value:g}"
        return f"{value} {self.unit}".strip()


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Base of the frozen parts of a machine description.

    Raises:
        MachineError: A number is not finite, has the wrong type, or lies outside what the field allows.
    """

    cited: Mapping[str, Cited] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for item in _own_fields(self):
            _check_kind(self, item, getattr(self, item.name))
            _check_number(self, item, getattr(self, item.name))
        self.check()

    def check(self) -> None:
        """Check relations of several fields.

        Raises:
            MachineError: The fields do not fit together.
        """

    def evolve(self, **changes: Any) -> Self:
        """A copy with some fields changed; a mapping changes fields of a nested part.

        Example: ``system.evolve(num_ipus=2, ipu={"clock_hz": 2e9, "tile": {"total_bytes": 1 << 20}})``.
        A new value has its source as in :func:`~abele.machine.source.stated`, or in a table of texts called ``cited``.

        Raises:
            MachineError: A field does not exist, its new value is not allowed, or a source is of no new value.
        """
        texts = changes.pop("cited", {})
        cited = {name: value for name, value in changes.items() if isinstance(value, Cited)}
        plain = {name: value.value if isinstance(value, Cited) else value for name, value in changes.items()}
        values = {name: self._changed(name, value) for name, value in plain.items()}
        return replace(self, **values, cited={**self.cited, **cited, **_cited(type(self), values, texts)})

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """The part that a table describes, as :func:`described` gives it.

        Raises:
            MachineError: A field is missing, does not exist, or has a value that is not allowed.
        """
        return cast(Self, _build(cls, table))

    def _changed(self, name: str, value: Any) -> Any:
        item = _field_named(type(self), name)
        kind, present = item.metadata.get("kind"), getattr(self, name)
        if isinstance(value, Mapping) and isinstance(present, Spec):
            return present.evolve(**value)
        return _made(kind, value)

    def source_of(self, name: str) -> Source:
        """Source of the value of field ``name``."""
        value = getattr(self, name)
        if name in self.cited and self.cited[name].value == value:
            return self.cited[name].source
        item = next(item for item in fields(self) if item.name == name)
        if "source" in item.metadata and item.default == value:
            source: Source = item.metadata["source"]
            return source
        return Source("given by the user", "U")


def sources(spec: Spec, path: str = "") -> tuple[MachineConstant, ...]:
    """Every constant of a machine, or of a part of one, with unit and source."""
    return tuple(_walk(spec, path))


def _walk(spec: Spec, path: str) -> Iterator[MachineConstant]:
    for item in _own_fields(spec):
        value, here = getattr(spec, item.name), f"{path}.{item.name}" if path else item.name
        if isinstance(value, Spec):
            yield from _walk(value, here)
        elif isinstance(value, tuple) and value and isinstance(value[0], Spec):
            for part in value:
                yield from _walk(part, f"{here}[{getattr(part, 'name', '')}]")
        elif "minimum" in item.metadata:
            source, meaning = spec.source_of(item.name), _meanings(type(spec).__doc__ or "").get(item.name, "")
            yield MachineConstant(here, value, unit_of(item.name), source, meaning)


@cache
def _meanings(docstring: str) -> dict[str, str]:
    """Meaning of each field of a part, by the list of attributes in the docstring of its class."""
    _, _, listed = docstring.partition("Attributes:\n")
    # An entry begins with its name, indented less than the lines that carry it on.
    entries = re.findall(r"^ {8}(\w+): (.*(?:\n {9,}.*)*)", listed, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def unit_of(name: str) -> str:
    """The unit that a field's name ends in; empty for counts and names."""
    if name in ("bytes", "bytes_per_second", "bytes_per_cycle"):
        name = "_" + name
    return next((unit for suffix, unit in _UNITS if name.endswith(suffix)), "")


def _own_fields(spec: Spec | type[Spec]) -> list[Field[Any]]:
    return [item for item in fields(spec) if item.name != "cited"]


def _field_named(kind: type[Spec], name: str) -> Field[Any]:
    by_name = {item.name: item for item in _own_fields(kind)}
    if name not in by_name:
        close = nearest(name, by_name)
        raise MachineError(
            f"{kind.__name__} has no field {name!r}",
            remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(by_name),
        )
    return by_name[name]


def described(spec: Spec) -> dict[str, Any]:
    """A part as a table of plain values, with the sources that only it has as ``cited``; :meth:`Spec.of` takes it."""
    table = {item.name: _plain(getattr(spec, item.name)) for item in _own_fields(spec)}
    cited = {name: spec.source_of(name).written() for name in spec.cited if name in table}
    return {**table, "cited": cited} if cited else table


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return described(value) if isinstance(value, Spec) else value


def _build(kind: type[Spec], table: Mapping[str, Any]) -> Spec:
    values = {name: value for name, value in table.items() if name != "cited"}
    for name in values:
        values[name] = _made(_field_named(kind, name).metadata.get("kind"), values[name])
    missing = [
        item.name
        for item in _own_fields(kind)
        if item.default is MISSING and item.default_factory is MISSING and item.name not in table
    ]
    if missing:
        raise MachineError(f"{kind.__name__} needs {', '.join(missing)} too", because=f"got only {', '.join(table)}")
    return kind(**values, cited=_cited(kind, values, table.get("cited", {})))


def _made(kind: type[Spec] | None, value: Any) -> Any:
    """Part, or tuple of parts, that a value describes; any other value unchanged."""
    if kind is None:
        return value
    if isinstance(value, Mapping):
        return _build(kind, value)
    return tuple(_made(kind, entry) for entry in value) if isinstance(value, (list, tuple)) else value


def _cited(kind: type[Spec], values: Mapping[str, Any], given: Any) -> dict[str, Cited]:
    """The sources of some values of a table.

    Raises:
        MachineError: One is not a text with a confidence, or is of no value of the table.
    """
    found, fits = {}, isinstance(given, Mapping)
    for name, text in given.items() if fits else ():
        source = Source.read(text)
        fits = fits and source is not None and name in values
        found[name] = Cited(values.get(name), source or Source("", "U"))
    if not fits:
        raise MachineError(
            f"{kind.__name__}.cited = {given!r:.200}: says of fields of the table where each comes from",
            remedy='cited = { clock_hz = "S: data sheet" }, with one of ' + ", ".join(CONFIDENCE),
        )
    return found


def _check_kind(spec: Spec, item: Field[Any], value: Any) -> None:
    where = f"{type(spec).__name__}.{item.name}"
    if str(item.type) == "str" and not isinstance(value, str):
        raise MachineError(f"{where} = {value!r}: must be a name")
    kind = item.metadata.get("kind")
    parts = value if isinstance(value, tuple) else (value,)
    if kind is not None and not all(
        isinstance(part, kind) or (part is None and item.default is None) for part in parts
    ):
        raise MachineError(f"{where} = {value!r}: must be a table of {kind.__name__}'s fields")


def _check_number(spec: Spec, item: Field[Any], value: Any) -> None:
    if "minimum" not in item.metadata:
        return
    minimum = item.metadata["minimum"]
    where = f"{type(spec).__name__}.{item.name}"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise MachineError(f"{where} = {value!r}: must be a finite number")
    if str(item.type) == "int" and value != int(value):
        raise MachineError(f"{where} = {value!r}: must be a whole number")
    if value < minimum if minimum is not None else value <= 0:
        raise MachineError(
            f"{where} = {value!r}: must be {f'at least {minimum:g}' if minimum is not None else 'above 0'}"
        )
    if item.name.endswith("_proportion") and value > 1:
        raise MachineError(f"{where} = {value!r}: must be at most 1")
