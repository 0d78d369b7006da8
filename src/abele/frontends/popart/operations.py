"""Operators that there are, by domain and version, and the logger."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import onnx

from abele.errors import nearest
from abele.frontends.onnx.registry import find
from abele.frontends.onnx.support import supported
from abele.frontends.popart.errors import popart_exception
from abele.frontends.popart.graphcore import SIGNATURES
from abele.frontends.popart.op_methods import NEWEST_OPSET, OLDEST_OPSET


@dataclass(frozen=True)
class OperatorIdentifier:
    """An operator: its domain, its name, and since which version of the domain it means this."""

    domain: str
    type: str
    version: int

    def __str__(self) -> str:
        return f"{self.domain}.{self.type}:{self.version}"


def getSupportedOperations(includeInternal: bool = False) -> list[OperatorIdentifier]:
    """Operators with a lowering, of all versions of a builder.

    Args:
        includeInternal: True for those that the original makes itself too; there are none here.
    """
    return [held for held in _standard(NEWEST_OPSET, every=True) if _has(held)] + [o for o in _own() if _has(o)]


def getUnsupportedOperations(opsetVersion: int) -> list[OperatorIdentifier]:
    """Operators of a version of ONNX that have no lowering.

    Raises:
        popart_exception: There is no such version.
    """
    if not OLDEST_OPSET <= opsetVersion <= NEWEST_OPSET:
        raise popart_exception(f"there is no opset {opsetVersion}; {OLDEST_OPSET} to {NEWEST_OPSET} exist")
    return [held for held in _standard(opsetVersion, every=False) if not _has(held)]


def _standard(version: int, *, every: bool) -> list[OperatorIdentifier]:
    found: dict[tuple[str | int, ...], OperatorIdentifier] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and not schema.deprecated and schema.since_version <= version:
            key: tuple[str | int, ...] = (schema.name, schema.since_version) if every else (schema.name,)
            held = found.get(key)
            if held is None or held.version < schema.since_version:
                found[key] = OperatorIdentifier("ai.onnx", schema.name, schema.since_version)
    return sorted(found.values(), key=lambda held: (held.type, held.version))


def _own() -> list[OperatorIdentifier]:
    return [OperatorIdentifier("ai.graphcore", name, 1) for name in sorted(o.name for o in SIGNATURES.values())]


def _has(operator: OperatorIdentifier) -> bool:
    domain = "" if operator.domain == "ai.onnx" else operator.domain
    return find(domain, operator.type, operator.version) is not None or operator.type in supported(domain)


_LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERR": logging.ERROR,
    "CRITICAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}


class Logger:
    """A logger of Python's under PopART's names: ``getLogger().setLevel("DEBUG")``."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger("abele.popart" + ("" if name == "all" else f".{name}"))

    def setLevel(self, level: str) -> None:
        """Let messages from a level on be shown.

        Raises:
            popart_exception: There is no such level.
        """
        if level not in _LEVELS:
            close = nearest(level, _LEVELS)
            raise popart_exception(
                f"Unknown logging level {level!r}; {', '.join(_LEVELS)} exist",
                remedy=f"setLevel({close!r})" if close else None,
            )
        self._logger.setLevel(_LEVELS[level])

    def getLevel(self) -> str:
        """The level from which messages are shown."""
        now = self._logger.getEffectiveLevel()
        return max((name for name, number in _LEVELS.items() if number <= now), key=_LEVELS.__getitem__)

    def debug(self, message: str) -> None:
        """Log for those who look for errors."""
        self._logger.debug(message)

    def info(self, message: str) -> None:
        """Log what goes on."""
        self._logger.info(message)

    def warn(self, message: str) -> None:
        """Log what may be wrong."""
        self._logger.warning(message)

    def error(self, message: str) -> None:
        """Log what is wrong."""
        self._logger.error(message)


def getLogger(name: str = "all") -> Logger:
    """The logger of a part of PopART, or of all."""
    return Logger(name)
