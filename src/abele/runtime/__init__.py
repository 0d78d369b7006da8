"""The runtime: the engine that runs compiled programs on the host, natively and on all cores."""

from abele.runtime.engine import Engine

__all__ = ["Engine"]
