"""The channel of the front end's events in traces."""

from __future__ import annotations

from abele.trace.channel import Channel

TRACED = Channel("poptorch")
