"""Selections of tiles: numbers, ranges, and words such as ``over`` and ``top 10``."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import InvalidOptionError, nearest
from abele.report import Report
from abele.viewer.answers.floor import ipu_tiles, places
from abele.viewer.answers.recent import recent
from abele.viewer.answers.registry import question
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer

Mask = npt.NDArray[np.bool_]

LONGEST = 1_900
"""Characters of tiles as ranges beyond which the words of the request stay."""
_COMPARED: dict[str, Callable[[Int64, float], Mask]] = {
    ">=": np.greater_equal,
    "<=": np.less_equal,
    ">": np.greater,
    "<": np.less,
    "=": np.equal,
}
_UNITS = {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "kib": 1024, "mib": 1024**2}
_HELP = (
    'numbers and ranges ("3, 10-12"), all, over, top 10, least 10, ipu 2, total>600kB, temporaries>100000, '
    "variable 12, with NAME"
)


def tiles_of(opened: Opened, text: str) -> Int64:
    """Tiles that a text names, int64[n], each once and in order.

    Args:
        opened: The report.
        text: Terms between commas, each a tile, a range, or words; tiles beyond the last one are left out.

    Raises:
        InvalidOptionError: A term is none of these.
    """

    def make() -> Int64:
        mask = np.zeros(opened.report.memory.num_tiles, dtype=bool)
        for term in text.split(","):
            if term.strip():
                _mark(opened.report, " ".join(term.split()), mask)
        return np.flatnonzero(mask).astype(np.int64)

    return recent(opened, "selections", text, make, 32)


def ranges_text(tiles: Int64) -> str:
    """Tiles as ranges: ``3, 10-12``.

    Args:
        tiles: Each once and in order, int64[n].
    """
    if not len(tiles):
        return ""
    first = np.append(0, np.flatnonzero(np.diff(tiles) != 1) + 1)
    last = np.append(first[1:], len(tiles)) - 1
    pairs = zip(tiles[first].tolist(), tiles[last].tolist(), strict=True)
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in pairs)


@question("tiles")
def tiles(opened: Opened, params: Params) -> Answer:
    """The tiles that a text names.

    Parameters: ``text``. Answer: head ``count`` and ``text``, as ranges where these are short; array ``tiles``.
    """
    text = params.text("text")
    found = tiles_of(opened, text)
    told = ranges_text(found)
    return Answer(
        {"count": len(found), "text": told if len(told) <= LONGEST else text}, {"tiles": found.astype(np.uint32)}
    )


def _mark(report: Report, term: str, mask: Mask) -> None:
    """Mark the tiles of one term."""
    for pattern, rule in _RULES:
        match = re.fullmatch(pattern, term, re.IGNORECASE)
        if match:
            rule(report, match, mask)
            return
    word = term.split()[0].lower() if term.split() else ""
    close = nearest(word, ("all", "over", "top", "least", "ipu", "variable", "with", "area"))
    raise InvalidOptionError(
        f"{term[:60]!r} names no tiles", remedy=(f"did you mean {close!r}? " if close else "") + _HELP
    )


def _range(report: Report, match: re.Match[str], mask: Mask) -> None:
    del report
    low, high = _number(match[1]), _number(match[2] or match[1])
    if high < low:
        raise InvalidOptionError(f"{match[0]!r} runs backwards", remedy=f"{high}-{low}")
    mask[low : high + 1] = True


def _all(report: Report, match: re.Match[str], mask: Mask) -> None:
    del report, match
    mask[:] = True


def _over(report: Report, match: re.Match[str], mask: Mask) -> None:
    del match
    mask |= report.memory.by_tile > report.memory.available_bytes


def _extremes(report: Report, match: re.Match[str], mask: Mask) -> None:
    """The fullest, or emptiest, tiles; of tiles that are alike the first ones."""
    held = report.memory.by_tile
    order = np.argsort(-held if match[1].lower() == "top" else held, kind="stable")
    mask[order[: _number(match[2])]] = True


def _ipu(report: Report, match: re.Match[str], mask: Mask) -> None:
    size, number = ipu_tiles(report), _number(match[1])
    mask[number * size : (number + 1) * size] = True


def _compared(report: Report, match: re.Match[str], mask: Mask) -> None:
    memory = report.memory
    name = match[1].lower()
    names = ("total", *memory.categories)
    if name not in names:
        close = nearest(name, names)
        raise InvalidOptionError(
            f"{match[1][:60]!r} is nothing that a tile holds",
            remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(names),
        )
    held = memory.by_tile if name == "total" else memory.bytes[memory.categories.index(name)]
    mask |= _COMPARED[match[2]](held, float(match[3].replace("_", "")) * _UNITS[match[4].lower()])


def _variable(report: Report, match: re.Match[str], mask: Mask) -> None:
    mask |= report.variable_by_tile(min(_number(match[1]), 2**62)) > 0


def _named(report: Report, match: re.Match[str], mask: Mask) -> None:
    mask |= report.variable_by_tile(match[1]) > 0


def _area(report: Report, match: re.Match[str], mask: Mask) -> None:
    """A rectangle on the floor plan of an IPU: columns and rows, ends included."""
    ipu, left, top, right, bottom = (_number(match[i]) for i in range(1, 6))
    size = ipu_tiles(report)
    column, row = places(size)
    inside = np.flatnonzero((column >= left) & (column <= right) & (row >= top) & (row <= bottom)) + ipu * size
    mask[inside[inside < len(mask)]] = True


def _number(text: str) -> int:
    """A number; one beyond every tile stays so, however long it is."""
    return int(text) if len(text) <= 12 else 10**12


_RULES: tuple[tuple[str, Callable[[Report, re.Match[str], Mask], None]], ...] = (
    (r"(\d+)(?: ?[-–] ?(\d+))?", _range),
    (r"all", _all),
    (r"over", _over),
    (r"(top|least) (\d+)", _extremes),
    (r"ipu (\d+)", _ipu),
    (r"area (\d+) (\d+) (\d+) (\d+) (\d+)", _area),
    (r"variable (\d+)", _variable),
    (r"with (.+)", _named),
    (r"([a-z_]+) ?(>=|<=|>|<|=) ?(\d[\d_]*(?:\.\d+)?) ?(b|kb|mb|kib|mib|)", _compared),
)
