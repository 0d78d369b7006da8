"""Messages of a chat as the text that a model was trained on, by its template.

Templates are programs in Jinja's language that come with weights from anywhere. They run in Jinja's sandbox and in a
process of their own with limits on time, memory and text: one that loops for ever is ended, and says so.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from abele.errors import AbeleError, MissingPackageError

MOST_CHARACTERS = 1 << 22
"""Longest text that a template may write: some hundred thousand words."""
MOST_SECONDS = 10.0
"""Time that a template may take; usual ones take a millisecond."""
_START_SECONDS = 60.0
"""Time for the process to start, on a machine however busy."""


class ChatTemplateError(AbeleError, ValueError):
    """A chat refused by its template, or a template with a fault or without bounds on time, memory or text."""


class ChatTemplate:
    """A template of chats.

    Example: SmolLM2's writes ``<|im_start|>user\\nhi<|im_end|>\\n`` for a message of the user, and a system message of
    its own before the first one.

    Args:
        source: The template in Jinja's language.
        variables: Names that it may use beside the messages, as ``bos_token``.
        seconds: Time that one chat may take.
    """

    def __init__(
        self, source: str, variables: Mapping[str, Any] | None = None, *, seconds: float = MOST_SECONDS
    ) -> None:
        self.source = source
        self.variables = dict(variables or {})
        self.seconds = seconds

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        generation: bool = True,
        **variables: Any,
    ) -> str:
        """Text of a chat.

        Args:
            messages: Each has a ``role`` and, mostly, ``content``.
            tools: Functions that the model may call, as JSON schemata.
            generation: Adds what comes before an answer.
            variables: More names for the template.

        Raises:
            ChatTemplateError: A message has no role; the template refuses the messages, is wrong, or goes over a limit.
        """
        if not messages:
            raise ChatTemplateError("a chat without messages")
        for number, message in enumerate(messages):
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise ChatTemplateError(f"message {number} has no role", remedy="{'role': 'user', 'content': …}")
        given = {**self.variables, **variables, "messages": list(messages), "add_generation_prompt": generation}
        if tools is not None:
            given["tools"] = list(tools)
        asked = {"template": self.source, "variables": given, "most": MOST_CHARACTERS}
        try:
            line = json.dumps(asked).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise ChatTemplateError("the messages are not made of JSON's types", because=str(error)) from error
        answer = _WORKER.ask(line, self.seconds)
        if "error" in answer:
            raise ChatTemplateError("the chat template cannot be filled in", because=answer["error"])
        return answer["text"]


class _TemplateProcess:
    """The process that fills in templates, started when it is first asked and after every end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def ask(self, line: bytes, seconds: float) -> dict[str, str]:
        """The answer to one line; callers take turns."""
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            try:
                process.stdin.write(line)
                process.stdin.flush()
                answer: dict[str, str] = json.loads(self._line(process, seconds))
            except TimeoutError:
                self._end()
                return {"error": f"it takes longer than {seconds:g} s"}
            except (OSError, ValueError):
                self._end()
                return {"error": "the process that fills it in died, probably for want of memory"}
            except BaseException:  # its answer would be taken for that to the next question
                self._end()
                raise
            return answer

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner == os.getpid() and self._process.poll() is None:
            return self._process
        if importlib.util.find_spec("jinja2") is None:
            raise MissingPackageError("chat templates need jinja2", remedy="pip install 'abele[llm]'")
        script = Path(__file__).with_name("chat_worker.py")
        # Without -P the script's folder would be searched first, and has modules of common names.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for who asks
        )
        self._owner = os.getpid()
        ready = json.dumps({"template": "", "variables": {}, "most": 0}).encode() + b"\n"
        assert self._process.stdin is not None
        self._process.stdin.write(ready)
        self._process.stdin.flush()
        self._line(self._process, _START_SECONDS)
        return self._process

    def _line(self, process: subprocess.Popen[bytes], seconds: float) -> bytes:
        """The next line that the process writes.

        Raises:
            TimeoutError: It takes longer.
            BrokenPipeError: It ended.
        """
        assert process.stdout is not None
        found, until = b"", time.monotonic() + seconds
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            while not found.endswith(b"\n"):
                if not ready.select(max(0.0, until - time.monotonic())):
                    raise TimeoutError
                more = os.read(process.stdout.fileno(), 1 << 16)
                if not more:
                    raise BrokenPipeError
                found += more
        return found

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:  # what was left to write to it
                        continue

    def close(self) -> None:
        """End of the process, when this one ends."""
        with self._lock:
            self._end()


_WORKER = _TemplateProcess()
atexit.register(_WORKER.close)
