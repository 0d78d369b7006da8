"""What a program does on the host and when: recording it, and reading what was recorded as columns."""

from abele.trace.channel import (
    Channel,
    Graph,
    Heatmap,
    Series,
    Tracepoint,
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
    "Graph",
    "Heatmap",
    "HeatmapData",
    "Instants",
    "Processes",
    "Series",
    "SeriesData",
    "Threads",
    "Trace",
    "Tracepoint",
    "flush",
    "is_recording",
    "recording",
    "recording_path",
    "start",
    "stop",
]
