"""What the C++ compiler says, as errors of ours."""

from __future__ import annotations

import re

from abele.errors import CodeletError, CodeletLoadError, CodeletParseError

_MESSAGE = re.compile(r"^(?P<file>[^\n:]+):(?P<line>\d+):\d+: (?:fatal )?error: (?P<text>.*)$", re.M)
_BUILTIN = re.compile(r"'(?P<name>__builtin_ipu_\w+|ipu::\w+)'")
_MISSING = re.compile(r"'(?P<name>[^']+)' file not found")
_ASSEMBLY = ("in asm", "asm constraint", "assembly", "inline asm")
_MARK = "__attribute__((used)) "

HARDWARE_REMEDY = "put it between #ifdef __IPU__ and #else, with portable C++ after #else; __IPU__ is not defined here"
_SNIPPET_LINES = 4


def compile_error(said: str, name: str, source: str) -> CodeletError:
    """The error that the compiler's output means.

    Args:
        said: Its output.
        name: The user's file.
        source: The temporary file that it was given.
    """
    said = said.replace(source, name).replace(_MARK, "")
    found = _MESSAGE.search(said)
    if found is None:
        return CodeletLoadError(
            f"the C++ compiler refused {name}",
            because=said.strip()[:2000] or "it said nothing",
            remedy="check the flags that were given with the file",
        )
    at, text = f"{found['file']}:{found['line']}", found["text"]
    missing = _MISSING.search(text)
    if missing is not None:
        boost = missing["name"].startswith("boost/")
        return CodeletLoadError(
            f"header {missing['name']!r} was not found",
            at=at,
            because="of Boost there are multi_array, optional and variant, as names for headers" if boost else text,
            remedy="give its directory: include=[…] or flags='-I…'",
        )
    for message in _MESSAGE.finditer(said):
        builtin = _BUILTIN.search(message["text"])
        if builtin is not None:
            line = f"{message['file']}:{message['line']}"
            return hardware_only(builtin["name"], "an instruction without a portable meaning here", line)
    if any(word in text for word in _ASSEMBLY):
        return hardware_only("inline assembly", f"the compiler says: {text}", at)
    return CodeletParseError(text, at=at, because=_snippet(said, found.end()), remedy=_count(said))


def hardware_only(what: str, reason: str, at: str | None) -> CodeletError:
    """The refusal of something that only the hardware can run."""
    return CodeletError(f"{what} runs on the hardware only", at=at, because=reason, remedy=HARDWARE_REMEDY)


def _snippet(said: str, start: int) -> str | None:
    lines = [line for line in said[start:].splitlines() if line.strip()][:_SNIPPET_LINES]
    return "\n".join(lines) or None


def _count(said: str) -> str | None:
    number = len(_MESSAGE.findall(said))
    return f"there are {number} errors; this is the first" if number > 1 else None
