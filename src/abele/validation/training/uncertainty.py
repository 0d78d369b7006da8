"""Uncertainty of a predicted time from the constants that it rests on."""

from __future__ import annotations

from abele.machine import sources, systems
from abele.validation.training.run import Prediction

UNCERTAINTY = {"S": 0.02, "D": 0.05, "C": 0.05, "M": 0.05, "G": 0.5, "U": 0.0}
"""By how much of itself a constant may be off, by the confidence of its source. A guess may be off by half."""

_RESTS_ON = {
    "compute": ("ipu.launch.", "ipu.amp.", "ipu.rearrange."),
    "exchange": ("ipu.exchange.",),
    "sync": ("ipu.sync.", "ipu_links.", "gateway."),
    "host": ("host.",),
}
"""Constants by the part of a time that they decide."""
_LINKS = ("ipu_links.", "gateway.")
"""Prefixes of the constants of sums over replicas."""


def uncertainty(prediction: Prediction) -> float:
    """Share of its time by which a prediction may be off, as far as the constants of its system decide it.

    Of each part of the time the least certain constants count, by the confidence of their sources
    (:data:`UNCERTAINTY`), weighed alike. Parts are added up, as if they were all off the same way.
    """
    found = sources(systems.get(prediction.run.system))

    def spread(prefixes: tuple[str, ...]) -> float:
        each = [UNCERTAINTY[c.source.confidence] for c in found if c.path.startswith(prefixes)]
        return sum(each) / len(each) if each else 0.0

    parts = {name: prediction.parts[name] * spread(prefixes) for name, prefixes in _RESTS_ON.items()}
    links = prediction.phases["all_reduce"] * spread(_LINKS)
    return (sum(parts.values()) + links) / prediction.seconds
