"""Errors about a class that wait until it is used.

An error refuses its own class, not its file. A function that the compiler does not take becomes a call of a symbol that
spells the error. A vertex that still reaches that call once everything is in place is refused.
"""

from __future__ import annotations

import json

from abele.errors import AbeleError, CodeletError, CodeletLinkError, CodeletLoadError, CodeletParseError, SymbolError

_PREFIX = "abele.refused."
_KINDS = {k.__name__: k for k in (CodeletError, CodeletLinkError, CodeletLoadError, CodeletParseError, SymbolError)}


def refusal_symbol(error: AbeleError) -> str:
    """A symbol that spells an error."""
    return _PREFIX + refusal_text(error).encode().hex()


def symbol_refusal(symbol: str) -> AbeleError | None:
    """The error that a symbol spells; None where it spells none."""
    return text_refusal(bytes.fromhex(symbol.removeprefix(_PREFIX)).decode()) if symbol.startswith(_PREFIX) else None


def refusal_text(error: AbeleError) -> str:
    """An error as text, to be kept on disk."""
    return json.dumps([type(error).__name__, error.message, error.at, error.because, error.remedy])


def text_refusal(text: str) -> AbeleError:
    """The error of a text that :func:`refusal_text` made."""
    kind, message, at, because, remedy = json.loads(text)
    return _KINDS.get(kind, CodeletError)(message, at=at, because=because, remedy=remedy)
