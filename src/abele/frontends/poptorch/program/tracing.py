"""The channel on which the front end says in traces what it does."""

from __future__ import annotations

from abele.trace.channel import Channel

TRACED = Channel("poptorch")
