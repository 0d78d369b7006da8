"""Options of an engine: read from the program and the environment, checked, and logged where they do nothing."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from abele.errors import InvalidOptionError
from abele.runtime.engine.option_table import OPTIONS, Value

LOG = logging.getLogger("abele")

VARIABLES = ("POPLAR_ENGINE_OPTIONS", "POPLAR_RUNTIME_OPTIONS", "ABELE_ENGINE_OPTIONS")
"""Environment variables that hold JSON objects of options; a later one overrides those before it."""

LOG_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERR": logging.ERROR,
    "OFF": logging.CRITICAL + 1,
}
"""Values of POPLAR_LOG_LEVEL, and levels of the logger ``abele``."""


@dataclass(frozen=True)
class EngineOptions(Mapping[str, Value]):
    """Options with their values; ``options["debug.instrument"]`` is there whether it was given or not.

    Attributes:
        given: Those that the program or the environment gave.
    """

    given: Mapping[str, Value]

    def __getitem__(self, name: str) -> Value:
        if name in self.given:
            return self.given[name]
        default: Value = OPTIONS[OPTIONS.find(name)].default
        return default

    def __iter__(self) -> Iterator[str]:
        return iter(OPTIONS)

    def __len__(self) -> int:
        return len(OPTIONS)

    def flag(self, name: str) -> bool:
        """The value of an option that is true or false."""
        return bool(self[name])

    def number(self, name: str) -> int:
        """The value of an option that is a number."""
        return int(self[name])

    def text(self, name: str) -> str:
        """The value of an option that is a word or text."""
        return str(self[name])


def read_options(options: Mapping[str, Any] | None, environment: Mapping[str, str] | None = None) -> EngineOptions:
    """Options of a program, overridden by those of the environment.

    Args:
        options: By Poplar's names; values may be text.
        environment: Variables; the process's own when left out.

    Raises:
        InvalidOptionError: An option that does not exist, a value that it does not take, or a variable that holds no
            JSON object.
    """
    environment = os.environ if environment is None else environment
    given = {OPTIONS.find(name): OPTIONS.parse(name, value) for name, value in (options or {}).items()}
    for variable in VARIABLES:
        source = f"environment variable {variable}"
        for name, value in _object_in(environment.get(variable, ""), variable).items():
            given[OPTIONS.find(name, source)] = OPTIONS.parse(name, value, source)
    for name in given:
        if not OPTIONS[name].honoured:
            LOG.debug("engine option %r has no effect here: %s", name, OPTIONS[name].doc)
    return EngineOptions(given)


def _object_in(text: str, variable: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidOptionError(
            f"environment variable {variable} holds no JSON: {error}",
            remedy=f'{variable}=\'{{"debug.instrument": "true"}}\'',
        ) from None
    if not isinstance(found, dict):
        raise InvalidOptionError(f"environment variable {variable} holds a JSON {type(found).__name__}, not an object")
    return found


def set_log_level(environment: Mapping[str, str] | None = None) -> None:
    """Set the level of the logger ``abele`` from POPLAR_LOG_LEVEL, and let it write to stderr, if that is set.

    Raises:
        InvalidOptionError: It holds no level.
    """
    word = (os.environ if environment is None else environment).get("POPLAR_LOG_LEVEL", "").upper()
    if not word:
        return
    if word not in LOG_LEVELS:
        raise InvalidOptionError(
            f"environment variable POPLAR_LOG_LEVEL holds {word!r}", remedy="one of " + ", ".join(LOG_LEVELS)
        )
    LOG.setLevel(LOG_LEVELS[word])
    if not LOG.hasHandlers():
        LOG.addHandler(logging.StreamHandler())
