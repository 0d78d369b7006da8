"""The runtime: the engine that runs compiled programs on the host, natively and on all cores."""

from abele.runtime.checks.checking import Checks
from abele.runtime.engine.engine import Engine
from abele.runtime.engine.options import EngineOptions
from abele.runtime.streams.stream_callback import Result, StreamCallback

__all__ = ["Checks", "Engine", "EngineOptions", "Result", "StreamCallback"]
