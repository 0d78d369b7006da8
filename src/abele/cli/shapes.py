"""Shapes of ONNX models on the command line: ``--shape batch=1``, ``--shape input=1,3,224,224``."""

from __future__ import annotations

from collections.abc import Sequence

from abele.errors import InvalidOptionError


def pair(text: str, option: str) -> tuple[str, str]:
    """Name and value of ``name=value``; names may have an equals sign.

    Raises:
        InvalidOptionError: It is no such pair.
    """
    name, equals, value = text.rpartition("=")
    if not equals or not name:
        raise InvalidOptionError(f"{option} takes name=value, got {text!r}")
    return name, value


def shapes_of(given: Sequence[str]) -> dict[str, int | tuple[int, ...]]:
    """Shapes of inputs and extents of dimensions by name.

    Raises:
        InvalidOptionError: One is none.
    """
    found: dict[str, int | tuple[int, ...]] = {}
    for text in given:
        name, value = pair(text, "--shape")
        try:
            extents = tuple(int(n) for n in value.split(",") if n.strip())
        except ValueError:
            raise InvalidOptionError(
                f"--shape {text!r} has no whole numbers", remedy="input=1,3,224,224 or batch=1"
            ) from None
        found[name] = extents[0] if len(extents) == 1 and "," not in value else extents
    return found
