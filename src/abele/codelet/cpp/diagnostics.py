"""Messages of the C++ compiler, as errors of ours."""

from __future__ import annotations

import re
from dataclasses import dataclass

from abele.errors import CodeletError, CodeletLoadError, CodeletParseError

_MESSAGE = re.compile(
    r"^(?P<file>[^\n:]+):(?P<line>\d+):(?P<column>\d+): (?:fatal )?error: (?P<text>.*)$",
    re.M,
)
_NOTE = re.compile(r"^(?P<file>[^\n:]+):(?P<line>\d+):(?P<column>\d+): note: in instantiation of ", re.M)
_BUILTIN = re.compile(r"'(?P<name>__builtin_ipu_\w+|ipu::\w+)'")
_MISSING = re.compile(r"'(?P<name>[^']+)' file not found")
_ASSEMBLY = ("in asm", "asm constraint", "assembly", "inline asm")
USED = "__attribute__((used)) "
"""Mark of ``compute`` before it is compiled; messages do not show it."""

HARDWARE_REMEDY = "put it between #ifdef __IPU__ and #else, with portable C++ after #else; __IPU__ is not defined here"
_SNIPPET_LINES = 4


@dataclass(frozen=True)
class Message:
    """An error that the compiler found in the user's file.

    Attributes:
        error: Error of ours that it becomes.
        places: Lines and columns of the user's file that it is about: its own place, and that of the code that asked
            for it.
    """

    error: CodeletError
    places: tuple[tuple[int, int], ...]


def compile_error(said: str, name: str, source: str) -> CodeletError:
    """The error that the compiler's output means.

    Args:
        said: Its output.
        name: The user's file.
        source: The temporary file that it was given.
    """
    messages = compile_messages(said, name, source)
    if not messages:
        return CodeletLoadError(
            f"the C++ compiler refused {name}",
            because=said.replace(source, name).strip()[:2000] or "it said nothing",
            remedy="check the flags that were given with the file",
        )
    first = next((m.error for m in messages if type(m.error) is CodeletError), messages[0].error)
    if type(first) is CodeletParseError and len(messages) > 1:
        first.remedy = f"there are {len(messages)} errors; this is the first"
    return first


def compile_messages(said: str, name: str, source: str) -> list[Message]:
    """The errors in the compiler's output, in its order.

    Args:
        said: Its output.
        name: The user's file.
        source: The temporary file that it was given.
    """
    said = said.replace(source, name).replace(USED, "")
    heads = list(_MESSAGE.finditer(said))
    ends = [*(h.start() for h in heads), len(said)][1:]
    return [_message(h, said[h.start() : end], name) for h, end in zip(heads, ends, strict=True)]


def _message(found: re.Match[str], said: str, name: str) -> Message:
    at, text = f"{found['file']}:{found['line']}", found["text"]
    here = [(int(found["line"]), int(found["column"]))] if found["file"] == name else []
    asked = [(int(n["line"]), int(n["column"])) for n in _NOTE.finditer(said) if n["file"] == name]
    places = tuple(here or asked)
    if not here and asked:
        at = f"{name}:{asked[0][0]}"
    builtin, missing = _BUILTIN.search(text), _MISSING.search(text)
    if missing is not None:
        boost = missing["name"].startswith("boost/")
        error: CodeletError = CodeletLoadError(
            f"header {missing['name']!r} was not found",
            at=at,
            because="of Boost there are multi_array, optional and variant, as names for headers" if boost else text,
            remedy="give its directory: include=[…] or flags='-I…'",
        )
        return Message(error, ())
    if builtin is not None:
        error = hardware_only(builtin["name"], "an instruction without a portable meaning here", at)
    elif any(word in text for word in _ASSEMBLY):
        error = hardware_only("inline assembly", f"the compiler says: {text}", at)
    else:
        error = CodeletParseError(text, at=at, because=_snippet(said, len(found[0])))
    return Message(error, places)


def hardware_only(what: str, reason: str, at: str | None) -> CodeletError:
    """The refusal of something that only the hardware can run."""
    return CodeletError(f"{what} runs on the hardware only", at=at, because=reason, remedy=HARDWARE_REMEDY)


def _snippet(said: str, start: int) -> str | None:
    lines = [line for line in said[start:].splitlines() if line.strip()][:_SNIPPET_LINES]
    return "\n".join(lines) or None
