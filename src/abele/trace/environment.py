"""Recording because the environment says so: ``PVTI_OPTIONS``, as for PopVision System Analyser."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from typing import Any

from abele.errors import InvalidOptionError
from abele.trace.channel import is_recording, start

LOG = logging.getLogger(__name__)
VARIABLE = "PVTI_OPTIONS"
_EXAMPLE = '{"enable": "true", "directory": "traces"}'
_KNOWN = ("enable", "directory", "channels")
_WORDS = {"true": True, "false": False, "1": True, "0": False}
_STATE = {"asked": False}


def begin_from_environment() -> None:
    """Begin to record if ``PVTI_OPTIONS`` asks for it, once per process; a running recording goes on.

    Raises:
        InvalidOptionError: The variable holds no JSON object, or values that it does not take.
        FileFormatError: The file cannot be written.
    """
    if _STATE["asked"]:
        return
    _STATE["asked"] = True
    if not is_recording():
        begin_as_told(os.environ)


def begin_as_told(environment: Mapping[str, str]) -> None:
    """Begin to record if these variables say so; errors as of :func:`begin_from_environment`."""
    options = _options(environment.get(VARIABLE, ""))
    if not options or not _is_enabled(options.get("enable", False)):
        return
    directory, channels = options.get("directory") or ".", options.get("channels")
    if not isinstance(directory, str):
        raise _refused("directory", directory, "a folder")
    if isinstance(channels, str):
        channels = [name.strip() for name in channels.split(",") if name.strip()]
    if channels is not None and not (isinstance(channels, list) and all(isinstance(name, str) for name in channels)):
        raise _refused("channels", channels, "a list of names")
    # An empty list would record nothing, which nobody means.
    start(os.path.expanduser(directory), channels or None)


def _options(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidOptionError(
            f"environment variable {VARIABLE} holds no JSON: {error}", remedy=f"{VARIABLE}='{_EXAMPLE}'"
        ) from None
    if not isinstance(found, dict):
        raise InvalidOptionError(
            f"environment variable {VARIABLE} holds a JSON {type(found).__name__}, not an object",
            remedy=f"{VARIABLE}='{_EXAMPLE}'",
        )
    for name in found:
        if name not in _KNOWN:
            LOG.debug("%s: %r has no effect here", VARIABLE, name)
    return found


def _is_enabled(value: Any) -> bool:
    word = str(value).lower()
    if word not in _WORDS:
        raise _refused("enable", value, '"true" or "false"')
    return _WORDS[word]


def _refused(name: str, value: Any, wanted: str) -> InvalidOptionError:
    return InvalidOptionError(f"{name!r} in environment variable {VARIABLE} is {value!r}", remedy=wanted)
