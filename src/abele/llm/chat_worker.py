"""A process that fills in templates of chats, for :mod:`abele.llm.chat`: run as a script, it imports nothing of Abele.

A line of JSON in is ``{"template": …, "variables": {…}, "most": characters}``; a line out is ``{"text": …}`` or
``{"error": …}``. Its address space is limited, and who asks kills it when an answer takes too long: templates come with
models from strangers, and Jinja's sandbox stops neither endless loops nor ``"a" * 10**12``.
"""

from __future__ import annotations

import datetime
import functools
import json
import resource
import sys
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

MORE_BYTES = 256 << 20
"""Address space that a template may use beside what the process has at its start."""


class RefusedChatError(Exception):
    """A refusal by the template itself, with ``raise_exception``."""


def _raise_exception(message: str) -> NoReturn:
    raise RefusedChatError(message)


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """JSON without the escapes for HTML that Jinja's own filter makes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


@functools.cache
def _environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    made.filters["tojson"] = _to_json
    made.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
    return made


@functools.lru_cache(16)
def _compiled(template: str) -> jinja2.Template:
    return _environment().from_string(template)


def _answer(asked: dict[str, Any]) -> dict[str, str]:
    try:
        parts, left = [], asked["most"]
        for part in _compiled(asked["template"]).generate(**asked["variables"]):
            left -= len(part)
            if left < 0:
                return {"error": f"it writes more than {asked['most']:,} characters"}
            parts.append(part)
        return {"text": "".join(parts)}
    except RefusedChatError as refusal:
        return {"error": f"it refuses these messages: {refusal}"}
    except jinja2.TemplateSyntaxError as error:
        return {"error": f"line {error.lineno}: {error.message}"}
    except MemoryError:
        return {"error": f"it needs more than {MORE_BYTES >> 20} MiB"}
    except Exception as error:  # templates can raise what Python can
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Answers until the input ends."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MORE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for line in sys.stdin.buffer:
        answer = json.dumps(_answer(json.loads(line)))
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
