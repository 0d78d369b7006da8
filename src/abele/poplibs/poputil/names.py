"""The camelCase names of PopLibs for our snake_case ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def camel_case(name: str) -> str:
    """PopLibs' spelling of a name.

    >>> camel_case("scaled_add_to"), camel_case("map")
    ('scaledAddTo', 'map')
    """
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def camel_aliases(namespace: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The objects called ``names`` under their camelCase spelling, where that differs; constants keep theirs."""
    return {camel_case(n): namespace[n] for n in names if camel_case(n) != n and not n.isupper()}
