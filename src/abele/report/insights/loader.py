"""Making batches and handing them over, beyond the device's time."""

from __future__ import annotations

from abele.report.insights.model import Cost, Lever
from abele.report.insights.program_steps import ProgramSteps
from abele.report.loading import epoch
from abele.report.text import percent_text, seconds_text
from abele.words import counted

_WORTH = 0.02
"""Part of a cost below which a lever is not listed."""


def loader_cycles(steps: ProgramSteps) -> float | None:
    """Cycles of a run in which the device waits for the host to make batches and call; None if unknown."""
    loading = steps.report.loading if steps.program == 0 else None
    if loading is None:
        return None
    passed = epoch(loading, steps.report.seconds(steps.run_cycles))
    waits = max(passed.total - passed.device, 0.0) / max(loading.batches_per_epoch, 1)
    return waits * float(steps.report.target["clock_hz"])


def loader_cost(steps: ProgramSteps) -> Cost | None:
    """Cost of making batches beyond the device's time; None where it is not known or nothing."""
    loading, waits = steps.report.loading, loader_cycles(steps)
    if loading is None or not waits:
        return None
    report, clock = steps.report, float(steps.report.target["clock_hz"])
    device = report.seconds(steps.run_cycles)
    now, batches = epoch(loading, device).total, max(loading.batches_per_epoch, 1)
    more = max(2 * loading.num_workers, 1)
    levers = []
    for title, change in (
        (f"{counted(more, 'worker')} instead of {loading.num_workers:,}", {"num_workers": more}),
        ("an AsynchronousDataAccessor with 3 batches ready", {"ring_batches": 3}),
    ):
        if all(getattr(loading, name) == value for name, value in change.items()):
            continue
        if "ring_batches" in change and loading.ring_batches:
            continue
        saved = (now - epoch(loading.evolve(**change), device).total) / batches * clock
        if saved >= _WORTH * waits:
            levers.append(
                Lever(
                    title, gain_cycles=int(saved), assumption="the epoch followed batch by batch, as report.limits does"
                )
            )
    makers = counted(loading.num_workers, "worker") if loading.num_workers else "the calling process makes batches"
    return Cost(
        kind="loader",
        title="making and handing over batches",
        reason=f"the device waits {percent_text(waits / (waits + steps.run_cycles))} of the time for the host: "
        f"{makers}, {seconds_text(loading.sample_seconds)} for each sample",
        cycles=int(waits),
        share=waits / (waits + steps.run_cycles),
        levers=tuple(sorted(levers, key=lambda lever: -(lever.gain_cycles or 0))),
        view="summary",
    )
