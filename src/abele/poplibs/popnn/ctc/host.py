"""CTC loss as a host runs it: one vertex for a sequence, with all positions of a step side by side in vector lanes.

On the machine a worker has a few positions, and a step is an exchange and a superstep. A host would spend more on going
from vertex to vertex than on their arithmetic. Here a step is a loop over all positions, which reads the two before
each from the last step: no position of a step depends on another of the same.

A position is *hopped* to from the second before it where both have labels that differ. To the logarithm of the others
the smallest logarithm is added, so that no lane has to choose.

Example: 20 labels have 41 positions, in three blocks of 16. "ab" has ␣ a ␣ b ␣; b alone can be hopped to.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import inf

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, exp, log, macro
from abele.graph import Execute, Graph, Tensor
from abele.numerics import ElementType, f32, i32, i64, u32
from abele.poplibs.popnn.ctc.codelets import FLOOR, LOW
from abele.poplibs.poputil.host_body import host_vertices

WIDTH = 16
"""Positions are made whole blocks of so many, for whole vectors."""
AROUND = 2
"""Positions of probability 0 before the first and after the last."""


@macro
def _log_sum(x, y, z):
    """The logarithm of a sum of three: scaled by the largest, whose own share is 1."""
    larger = max(x, y)
    m = max(larger, z)
    return m + log(f32(1.0) + exp(min(x, y) - m) + exp(min(larger, z) - m))


@macro
def _emit(self, t, positions):
    """Log-probabilities of the classes of all positions at a step; of no class, as of padding, the smallest."""
    for s in range(positions):
        c = self.klass[s]
        self.emitted[s] = LOW
        if c < i32(len(self.data[0])):
            self.emitted[s] = max(self.data[t][c], LOW)


@cache
def host_codelet(gradient: bool, softmax: bool) -> type:
    """Loss of a sequence, and its gradient; see :func:`~abele.poplibs.popnn.ctc.codelets.gradient_codelet`.

    ``klass``, ``emitted`` and ``share`` have an element for every position, in whole blocks; ``hop``, ``now`` and
    ``then`` two more on either side. ``alpha`` keeps the forward sweep [steps, positions].
    """

    @codelet(name="HostCtc")
    class HostCtc(Vertex):
        data: Vector[Input[Vector[f32]]]
        labels: Input[Vector[u32]]
        time: Input[u32]
        count: Input[u32]
        loss: Output[f32]
        klass: InOut[Vector[i32]]
        emitted: InOut[Vector[f32]]
        hop: InOut[Vector[f32]]
        now: InOut[Vector[f32]]
        then: InOut[Vector[f32]]
        if gradient:
            alpha: InOut[Vector[f32]]
            share: InOut[Vector[f32]]
            out: Vector[Output[Vector[f32]]]
        blank: i32
        zero: i32

        def compute(self):
            positions = i64(len(self.klass))
            classes = i64(len(self.data[0]))
            time = min(i64(self.time), i64(len(self.data)))
            count = min(i64(self.count), i64(len(self.labels)))
            last = 2 * count
            for s in range(positions):
                self.klass[s] = i32(classes)
            for i in range(positions + 2 * AROUND):
                self.hop[i] = LOW
                self.now[i] = LOW
                self.then[i] = LOW
            for i in range(count + 1):
                self.klass[2 * i] = self.blank
            for i in range(count):
                self.klass[2 * i + 1] = i32(min(i64(self.labels[i]), classes))
                if i > 0:  # noqa: SIM102  what is inside is read only then
                    if self.labels[i] != self.labels[i - 1]:
                        self.hop[2 * i + 3] = 0.0
            # As if before the first step all were at the first blank: from there it or the first label follows.
            self.now[2] = 0.0
            for t in range(time):
                _emit(self, t, positions=positions)
                for s in range(positions):
                    z = self.now[s] + self.hop[s + 2]
                    self.then[s] = _log_sum(self.now[s + 2], self.now[s + 1], z) + self.emitted[s]
                for s in range(positions):
                    self.now[s + 2] = self.then[s]
                if gradient:
                    for s in range(positions):
                        self.alpha[t * positions + s] = self.then[s]
            x = self.now[last + 2]
            y = f32(LOW)
            if count > 0:
                y = self.now[last + 1]
            m = max(x, y)
            loss = -(m + log(exp(x - m) + exp(y - m)))
            if m < FLOOR:
                loss = f32(inf)
            if time == 0:
                loss = f32(0.0) if count == 0 else f32(inf)
            self.loss = f32(0.0) if self.zero == 1 and loss > 1e37 else loss
            if gradient:
                for t in range(i64(len(self.out))):
                    for c in range(classes):
                        self.out[t][c] = 0.0
                    if t < time:
                        if loss < 1e37:
                            if softmax:
                                for c in range(classes):
                                    self.out[t][c] = exp(self.data[t][c])
                        elif self.zero == 0:
                            for c in range(classes):
                                self.out[t][c] = loss - loss
                # Backwards: as if after the last step all were at the last blank.
                for i in range(positions + 2 * AROUND):
                    self.now[i] = LOW
                self.now[last] = 0.0
                for step in range(time):
                    t = time - 1 - step
                    _emit(self, t, positions=positions)
                    for s in range(positions):
                        z = self.now[s + 2] + self.hop[s + 4]
                        after = _log_sum(self.now[s], self.now[s + 1], z)
                        v = self.alpha[t * positions + s] + after
                        self.share[s] = exp(v + loss) if v > FLOOR else f32(0.0)
                        self.then[s] = after + self.emitted[s]
                    for s in range(positions):
                        self.now[s] = self.then[s]
                    if loss < 1e37:
                        for s in range(last + 1):
                            c = self.klass[s]
                            if c < i32(classes):
                                self.out[t][c] = self.out[t][c] - self.share[s]

    return HostCtc


def host_ctc(
    graph: Graph,
    operands: Sequence[Tensor],
    results: Sequence[Tensor],
    *,
    blank: int,
    softmax: bool,
    zero_infinity: bool,
) -> Execute:
    """The step that makes losses f32 [batch], and gradients f32 [steps, batch, classes] where they have a place.

    Args:
        graph: The graph.
        operands: Log-probabilities f32 [steps, batch, classes], labels, and the lengths of both.
        results: Tensors for losses, and for gradients if they are wanted.
        blank: The class that stands for no label.
        softmax: True if the gradient goes through a softmax before.
        zero_infinity: True if infinite losses, and their gradients, are 0.
    """
    data, labels, times, counts = operands
    steps, batch, _ = data.shape
    positions = -(-(2 * labels.shape[1] + 1) // WIDTH) * WIDTH

    def scratch(dtype: ElementType, size: int) -> Tensor:
        return graph.variable(dtype, (batch, size), name="host", map="linear")

    fields = {
        "data": data.transpose((1, 0, 2)),
        "labels": labels,
        "time": times,
        "count": counts,
        "loss": results[0],
        "klass": scratch(i32, positions),
        "emitted": scratch(f32, positions),
        **{name: scratch(f32, positions + 2 * AROUND) for name in ("hop", "now", "then")},
    }
    gradient = len(results) > 1
    if gradient:
        fields |= {"alpha": scratch(f32, steps * positions), "share": scratch(f32, positions)}
        fields["out"] = results[1].transpose((1, 0, 2))
    step = graph.compute_set("host")
    host_vertices(step, host_codelet(gradient, softmax), **fields, blank=blank, zero=int(zero_infinity))
    return Execute(step)
