"""The terminal: text from files and users is shown there, never obeyed, in any character set of the terminal.

Names in a file may hold escape sequences that rename the window, clear the screen or turn the text around, and marks
that a table would take for colours. Everything that Abele prints for people goes through a console from here, or
through :func:`visible_text`. Where the terminal has ASCII alone, the signs that Abele itself uses become plain ones.
"""

from __future__ import annotations

import codecs
import sys
from typing import IO, TYPE_CHECKING, Any

from abele.words import visible

if TYPE_CHECKING:
    from rich.console import Console

_HANDLER = "abele.plain"
_PLAIN = {
    **dict.fromkeys("–—−─━═╴╶╸╺", "-"),
    **dict.fromkeys("·│┃║", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯┏┓┗┛┡┩╇╋┳┻╔╗╚╝", "+"),
    **dict.fromkeys("█▉▊▋▌▍▎▏▐▕▓▒░■▇▆▅▄▃▂▁", "#"),
    **dict.fromkeys("‘’′", "'"),
    **dict.fromkeys("“”„", '"'),
    **dict.fromkeys("•⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "*"),
    "×": "x",
    "µ": "u",
    "→": "->",
    "←": "<-",
    "…": "...",
    "²": "2",
    "³": "3",
    "≥": ">=",
    "≤": "<=",
    "≈": "~",
    "±": "+-",
    "\u00a0": " ",
    "\u202f": " ",
    "\N{REPLACEMENT CHARACTER}": "?",
}
"""Replacement of a character that the terminal lacks."""


def visible_text(text: str) -> str:
    """Text of several lines with nothing in it that a terminal would obey; ends of lines and tabs are kept."""
    plain = text.replace("\n", "").replace("\t", "")
    if plain.isprintable():
        return text
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in text.split("\n"))


def plain_text(text: str, encoding: str) -> str:
    """The text with signs replaced that an encoding lacks."""
    return text.encode(encoding, _HANDLER).decode(encoding)


def shown_text(text: str, stream: IO[str] | None = None) -> str:
    """Text that may be printed: as :func:`visible_text`, in characters that a stream (or standard output) has."""
    shown = visible_text(text)
    encoding = getattr(stream or sys.stdout, "encoding", None) or "utf-8"
    return shown if shown.isascii() else plain_text(shown, encoding)


def prepare_output() -> None:
    """Make standard output and error take any text; characters outside their encoding become plain signs."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=_HANDLER)


def console(**settings: Any) -> Console:
    """A rich console for plain text: no markup, and no sequences that the terminal would obey.

    Args:
        settings: Further settings of ``rich.console.Console``.
    """
    from rich.console import Console

    from abele.terminal_segments import VisibleSegments

    made = Console(**{"highlight": False, "markup": False, "emoji": False, **settings})
    made.push_render_hook(VisibleSegments())
    return made


def _plain_signs(error: UnicodeError) -> tuple[str, int]:
    """Replacement of characters that cannot be encoded; a handler of :mod:`codecs`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in found), error.end


codecs.register_error(_HANDLER, _plain_signs)
