"""Parameters of questions about the host: the source, row and map tile."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abele.errors import InvalidOptionError
from abele.viewer.bars import COLUMNS, edges_of
from abele.viewer.host_data import HostData, HostSource, host_data
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.words import counted, shortened

MOST_LABELS = 400
"""Names, channels and call paths of a source that are told."""
MOST_BINS = 128
"""Bins of a heat map that are told apart."""
FROZEN_LEVELS = 4
_MOST_LEVEL = 50
_NAME_LETTERS = 200


def short_name(text: str) -> str:
    """A name at the length at which it is sent."""
    return shortened(text, _NAME_LETTERS)


def source_asked(opened: Opened, params: Params) -> tuple[HostData, HostSource]:
    """Data measured on the host, and the source that the question names.

    Raises:
        InvalidOptionError: There is no such source.
    """
    data = host_data(opened)
    number = params.number("source", high=1 << 20)
    if number >= len(data.sources):
        raise InvalidOptionError(
            f"there is no source {number}", remedy=f"{counted(len(data.sources), 'source')} of events are open"
        )
    return data, data.sources[number]


def row_asked(params: Params, name: str, rows: int) -> int:
    """A row of one of ``rows``, as the parameter ``name`` says.

    Raises:
        InvalidOptionError: There is no such row.
    """
    number = params.number(name, high=1 << 40)
    if number >= rows:
        raise InvalidOptionError(f"there is no {name} {number}", remedy=f"there are {rows:,}")
    return number


def edges_asked(data: HostData, params: Params, columns: int = COLUMNS) -> npt.NDArray[np.float64]:
    """Edges of the columns of a map tile in ns, float64[columns + 1]."""
    level = params.number("level", high=_MOST_LEVEL)
    index = params.number("index", high=(1 << level) - 1)
    return edges_of(index, level, 0.0, float(max(data.duration_ns, 1)), columns)
