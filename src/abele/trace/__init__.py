"""Events of a program on the host over time: recording them, and reading records as columns."""

from abele.trace.channel import (
    Channel,
    Heatmap,
    RecordedSpan,
    Series,
    SeriesGraph,
    flush,
    is_recording,
    recording,
    recording_path,
    start,
    stop,
)
from abele.trace.columns import Events, HeatmapData, Instants, Processes, SeriesData, Threads
from abele.trace.format import ENDING
from abele.trace.trace import Trace

__all__ = [
    "ENDING",
    "Channel",
    "Events",
    "Heatmap",
    "HeatmapData",
    "Instants",
    "Processes",
    "RecordedSpan",
    "Series",
    "SeriesData",
    "SeriesGraph",
    "Threads",
    "Trace",
    "flush",
    "is_recording",
    "recording",
    "recording_path",
    "start",
    "stop",
]
