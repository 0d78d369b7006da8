"""The page as one file: modules, styles and answers inside, so that it needs no server and no network.

Modules are the same files as a server sends. They lie in the page compressed, as the answers do; ``unfold.js`` inflates
them and leads their names to ``data:`` addresses by an import map. The content policy in the page's head allows exactly
these scripts and styles and no connection at all. It works where nothing is served: from a mail's attachment, from a
folder, and within a frame without rights in a notebook.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from abele import __version__
from abele.errors import AbeleError, InvalidOptionError
from abele.report import Report
from abele.viewer import pages
from abele.viewer.answers import QUESTIONS, Question
from abele.viewer.open_reports import Opened, Shelf, readable, unexpected
from abele.viewer.params import Params
from abele.viewer.wire import Answer, pack
from abele.writing import writing_whole

# The answers that a static page takes along: those that say most first, until its size is used up.
#
# Questions name with ``frozen`` which of their answers a page without a server should hold, coarse before fine, and
# with ``rank`` how much they matter. Answers lie under the addresses that the page asks. Those to one question
# resemble each other and are compressed together: 225 answers about steps of a program take 45 kB so, and 280 kB one
# by one.

_LEVEL = 9
"""Level of compression."""
_BUNDLE_BYTES = 1 << 18
"""Answers to one question are compressed together up to so many bytes: the page inflates them all to read one."""
_FIRST_ANSWERS, _FIRST_PART = 48, 1 / 12
"""Share of each question before any gets more: answers about a report, and part of the room."""


class _Bundle:
    """Answers that are compressed together.

    Attributes:
        number: Its place among the bundles of the page.
        content: The answers, one after the other.
        size: Bytes that they take compressed, or a little less.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.content = bytearray()
        self.size = 0
        self._stream = zlib.compressobj()

    def with_answer(self, packed: bytes) -> tuple[int, Any]:
        """Bytes that all would take with another answer, and the state to go on from then."""
        stream = self._stream.copy()
        return self.size + len(stream.compress(packed)) + len(stream.flush(zlib.Z_SYNC_FLUSH)), stream

    def add(self, packed: bytes, size: int, stream: Any) -> None:
        """Take an answer of which :meth:`with_answer` told size and state."""
        self.content += packed
        self.size, self._stream = size, stream


@dataclass
class Frozen:
    """Answers that a static page holds.

    Attributes:
        places: Place of each answer, by address: number of its bundle, first byte in it, bytes.
        bundles: The bundles, compressed, in base64.
        left: Questions of which some answers, or all, are left out, with the reason: ``size`` or ``server``.
        size: Characters that all take in the page, at most.
    """

    places: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    bundles: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    size: int = 0
    _open: dict[str, _Bundle] = field(default_factory=dict)

    def take(self, name: str, place: str, packed: bytes, most: float) -> bool:
        """Take an answer to the question ``name`` along; False where it has no room in ``most`` characters."""
        if place in self.places:
            return True
        bundle = self._open.get(name) or _Bundle(len(self.bundles))
        with_it, stream = bundle.with_answer(packed)
        # The list of places is compressed to less than half.
        size = self.size - _written(bundle.size) + _written(with_it) + len(json.dumps(place)) // 2 + 12
        if size > most:
            return False
        self.size = size
        if name not in self._open:
            self._open[name] = bundle
            self.bundles.append("")
        self.places[place] = (bundle.number, len(bundle.content), len(packed))
        bundle.add(packed, with_it, stream)
        if len(bundle.content) >= _BUNDLE_BYTES:
            self._close(self._open.pop(name))
        return True

    def close(self) -> None:
        """Take no more answers along."""
        while self._open:
            self._close(self._open.popitem()[1])

    def _close(self, bundle: _Bundle) -> None:
        packed = deflated(bundle.content)
        self.size += len(packed) + 3 - _written(bundle.size)
        self.bundles[bundle.number] = packed


def _written(num_bytes: int) -> int:
    """Characters that a bundle of so many compressed bytes takes in the page; none where there is none."""
    return -(-(num_bytes + _FRAME_BYTES) // 3) * 4 + 3 if num_bytes else 0


_FRAME_BYTES = 6
"""Bytes that zlib adds before and after the data."""


def deflated(content: bytes | bytearray) -> str:
    """Bytes as the page keeps them: compressed, in base64."""
    return base64.b64encode(zlib.compress(content, _LEVEL)).decode()


def frozen(shelf: Shelf, most_bytes: int) -> Frozen:
    """The answers about some reports that fit into so many bytes of a page.

    First each question gets a little, so that every view has something to show; then those with a low rank get all.

    Args:
        shelf: The reports.
        most_bytes: Bytes for the answers and their addresses.
    """
    found = Frozen()
    ranked = sorted(QUESTIONS.values(), key=lambda question: question.rank)
    found.left = {question.name: "server" for question in ranked if question.frozen is None}
    rest: list[tuple[Question, Iterator[tuple[str, bytes]]]] = []
    for question in ranked:
        for opened in shelf:
            if question.frozen is None:
                continue
            answers = _answers(question, opened)
            limit = min(found.size + most_bytes * _FIRST_PART / len(shelf), most_bytes)
            first = islice(answers, _FIRST_ANSWERS)
            later = [answer for answer in first if not found.take(question.name, *answer, limit)]
            rest.append((question, chain(later, answers)))
    for question, answers in rest:
        if not all(found.take(question.name, *answer, most_bytes) for answer in answers):
            found.left[question.name] = "size"
    found.close()
    return found


def _answers(question: Question, opened: Opened) -> Iterator[tuple[str, bytes]]:
    """Addresses and answers to a question, coarse before fine."""
    for params in _wanted(question, opened):
        yield address(opened.key, question.name, params), _packed(question, opened, params)


def _wanted(question: Question, opened: Opened) -> Iterator[Mapping[str, str]]:
    assert question.frozen is not None
    try:
        yield from question.frozen(opened)
    except AbeleError:
        # The part of the file that says which answers there are is damaged; asking says so.
        yield {}


def _packed(question: Question, opened: Opened, params: Mapping[str, str]) -> bytes:
    """An answer, or under ``refused`` what kept the question from being answered."""
    try:
        return pack(question.answer(opened, Params(params)), is_dense=True)
    except AbeleError as error:
        refused = readable(error)
    except Exception as error:
        refused = unexpected(error)
    return pack(Answer({"refused": refused}))


def address(key: str, name: str, params: Mapping[str, str]) -> str:
    """Address of a question for the page: as ``address`` in ``core/source.js`` writes it.

    Args:
        key: Of the report.
        name: Of the question.
        params: Its parameters; those without a value are left out.
    """
    given = "&".join(f"{_form(k)}={_form(str(v))}" for k, v in sorted(params.items()) if v not in ("", None))
    return f"{key}/{name}?{given}" if given else f"{key}/{name}"


def _form(text: str) -> str:
    """A name or value as browsers write it in a query: the form of application/x-www-form-urlencoded."""
    return quote(text, safe="*-._ ", errors="replace").replace("~", "%7E").replace(" ", "+")


MOST_BYTES = 8_000_000
"""Size of a page, when nobody says."""
_LEAST_ROOM = 100_000
"""Characters that a page should have for answers beside its modules."""

Reports = Sequence[str | Path | Report] | str | Path | Report


def static_page(reports: Reports, path: str | Path, most_bytes: float = MOST_BYTES) -> int:
    """Write a page that shows reports by itself, whole or not at all.

    Args:
        reports: One report or several, or their files.
        path: The file, by custom ``*.html``; folders above it are made.
        most_bytes: Largest size of the page. Details that have no room are left out, and its foot says so.

    Returns:
        Bytes of the page.

    Raises:
        FileFormatError: A report cannot be read, or the file cannot be written.
        InvalidOptionError: No reports, too many, or fewer bytes than a page needs.
    """
    html = static_html(reports, most_bytes).encode()
    with writing_whole(path) as part:
        part.write_bytes(html)
    return len(html)


def static_html(reports: Reports, most_bytes: float = MOST_BYTES) -> str:
    """The page that :func:`static_page` writes; the same arguments and errors."""
    if not math.isfinite(most_bytes):
        raise InvalidOptionError(f"a page of {most_bytes} B", remedy=f"a number, as {MOST_BYTES:,}")
    shelf = Shelf([reports] if isinstance(reports, str | Path | Report) else list(reports))
    title = ", ".join(opened.title for opened in shelf)
    listed = [opened.listed | {"changed": False} for opened in shelf]
    known: dict[str, Any] = {"reports": listed, "version": __version__}
    bare = len(_html(title, known, Frozen()).encode())
    # Room for the list of what is left out, which grows as the rest shrinks.
    room = int(most_bytes) - bare - 2_000
    if room < _LEAST_ROOM:
        raise InvalidOptionError(
            f"a page of {int(most_bytes):,} B has no room for a report",
            remedy=f"{bare + 2_000 + _LEAST_ROOM:,} B or more",
        )
    return _html(title, known, frozen(shelf, room))


def _html(title: str, known: dict[str, Any], found: Frozen) -> str:
    modules, imports = _modules()
    style, start = pages.style(), (pages.WEB / pages.UNFOLD).read_text("utf-8")
    policy = (
        f"default-src 'none'; script-src {pages.hashed(start)} {pages.hashed(imports)} data:; "
        f"style-src {pages.hashed(style)}; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    index = json.dumps({**known, "left": found.left, "answers": found.places}).encode()
    inside = json.dumps([deflated(index), *found.bundles], separators=(",", ":"))
    return pages.filled(
        title=title,
        policy=f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        styles=f"<style>{style}</style>",
        frozen=(
            f'<script type="application/json" id="abele-frozen">{inside}</script>\n'
            f'<script type="text/plain" id="abele-modules">{modules}</script>\n'
        ),
        start=f"<script>{start}</script>",
    )


@cache
def _modules() -> tuple[str, str]:
    """Modules of the page as it holds them, and the import map that ``unfold.js`` makes of them, to the letter."""
    modules = {f"abele/{name}": (pages.WEB / name).read_text("utf-8") for name in pages.module_names()}
    # As encodeURIComponent and JSON.stringify write them.
    imports = {name: f"data:{pages.TYPES['.js']},{quote(text, safe=_UNESCAPED)}" for name, text in modules.items()}
    return deflated(_json(modules).encode()), _json({"imports": imports})


_UNESCAPED = "-_.!~*'()"
"""Characters that encodeURIComponent leaves as they are, beside letters and digits."""


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
