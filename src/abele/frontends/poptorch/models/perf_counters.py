"""Counters of the last call: when its inputs went to the device, and its outputs came back.

The inputs of all iterations of a call are handed over together before the first of them, and the outputs are taken
together after the last: all iterations of a call have the same times, which are those of the host's clock. The same
times of every call, and how long data was waited for before it, are the rows of ``report().runs``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Latency = tuple[float, float, float]
"""The least, the most and the mean, in seconds."""


@dataclass
class PerfCounters:
    """Times of the last call, in seconds from its beginning.

    Attributes:
        times: Times at which inputs began and ended to be handed over, and outputs were there and were taken; None
            before any call.
        inputs: Tensors that went in.
        outputs: Tensors that came back.
        iterations: Micro-batches of the call.
        returned: Those of which outputs came back.
        synthetic: True if the device made its data itself: no tensor went in or came back.
    """

    times: tuple[float, float, float, float] | None = None
    inputs: int = 0
    outputs: int = 0
    iterations: int = 0
    returned: int = 0
    synthetic: bool = False
    _names: tuple[str, ...] = field(default=("input", "input_complete", "output", "output_complete"), repr=False)

    def table(self) -> dict[str, list[list[float]]]:
        """For each kind of time, a list for each tensor with the time of each iteration."""
        if self.times is None:
            return {name: [[]] for name in self._names}
        if self.synthetic:
            tensors = (self.inputs, self.inputs, self.outputs, self.outputs)
            return {name: [[] for _ in range(max(n, 1))] for name, n in zip(self._names, tensors, strict=True)}
        sizes = [(self.inputs, self.iterations)] * 2 + [(self.outputs, self.returned)] * 2
        return {
            name: [[time] * count for _ in range(tensors)]
            for name, time, (tensors, count) in zip(self._names, self.times, sizes, strict=True)
        }

    def latency(self, begin: int, end: int) -> Latency:
        """Least, most and mean time between two of the four moments."""
        if self.times is None or self.synthetic:
            return (0.0, 0.0, 0.0)
        seconds = self.times[end] - self.times[begin]
        return (seconds, seconds, seconds)


class Latencies:
    """The part of a wrapped model that tells how long its last call took."""

    _counters: PerfCounters

    def getPerfCounters(self) -> dict[str, list[list[float]]]:
        """``input``, ``input_complete``, ``output`` and ``output_complete``: for each tensor, the time of each
        iteration in seconds from the beginning of the last call."""
        return self._counters.table()

    def getHostIpuLatency(self) -> Latency:
        """Least, most and mean seconds that handing over inputs took."""
        return self._counters.latency(0, 1)

    def getComputeLatency(self) -> Latency:
        """Least, most and mean seconds from the last input to the first output."""
        return self._counters.latency(1, 2)

    def getIpuHostLatency(self) -> Latency:
        """Least, most and mean seconds that taking outputs took."""
        return self._counters.latency(2, 3)

    def getLatency(self) -> Latency:
        """Least, most and mean seconds from the first input to the last output."""
        return self._counters.latency(0, 3)
