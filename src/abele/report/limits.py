"""Three limits of a rate: the device's computing, the link to the host, the loader."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from abele.machine import described, sources
from abele.report.loading import Epoch, Loading, epoch

if TYPE_CHECKING:
    from abele.report.report import Report

LIMITS = ("device", "link", "loader")
"""Parts of a system that can limit a rate."""


@dataclass(frozen=True)
class RateLimits:
    """Samples per second that each part of a system reaches by itself, and all of them together.

    Attributes:
        device: Compute, exchange and sync of the modelled machine, as if streams took no time.
        link: Streams between the host and the device; None where the program has none.
        loader: The host alone, on which calls take no time of a device; None where loading is not described.
        samples_per_second: All together: at most the lowest of the three, and less where they wait for each other.
        name: Name of the lowest of the three.
        loading: Parameters of loading.
        epoch: Times of a pass over the data.
    """

    device: float
    link: float | None
    loader: float | None
    samples_per_second: float
    name: str
    loading: Loading | None = None
    epoch: Epoch | None = None

    def to_json(self) -> dict[str, Any]:
        """The limits as plain data, with every constant of the host and its source."""
        loading = self.loading
        return {
            "limit": self.name,
            "samples_per_second": self.samples_per_second,
            **{name: getattr(self, name) for name in LIMITS},
            "epoch_seconds": None if self.epoch is None else asdict(self.epoch),
            "loading": None if loading is None else described(loading),
            "constants": [] if loading is None else [asdict(item) for item in sources(loading, "loading")],
        }


def limits_of(report: Report) -> RateLimits | None:
    """The limits of program 0; None when the samples of a run are not known."""
    cycles, samples = report.cycles(), float(report.meta.get("samples_per_run") or 0)
    if not samples or not cycles.total:
        return None
    busy = min(cycles.compute + cycles.exchange + cycles.sync, cycles.total)
    device = samples / report.seconds(max(busy, 1))
    link = samples / report.seconds(cycles.host) if cycles.host else None
    whole = samples / report.seconds(cycles.total)
    loading = report.loading
    alone = RateLimits(device, link, None, whole, _lowest(device, link, None))
    if loading is None:
        return alone
    passed = epoch(loading, report.seconds(cycles.total))
    loader = loading.samples_per_epoch / max(epoch(loading, 0.0).total, 1e-12)
    together = loading.samples_per_epoch / max(passed.total, 1e-12)
    return replace(
        alone,
        loader=loader,
        samples_per_second=together,
        name=_lowest(device, link, loader),
        loading=loading,
        epoch=passed,
    )


def _lowest(*rates: float | None) -> str:
    return min((rate, name) for rate, name in zip(rates, LIMITS, strict=True) if rate is not None)[1]
