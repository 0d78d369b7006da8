"""Both sweeps over time, and the loss and gradients made from them.

A step of both sweeps is one superstep: workers read the two positions before (or after) their own from where the last
step left them, which is all that is exchanged, and write to the other of two buffers. The loop runs two steps per
round.

Where published cycle counts differ: theirs rise with the classes (375 steps of 36 classes take 1,198 cycles per step,
1,200 steps of 5 classes 712, with more than twice the labels), which no sweep over labels does. All but 0.9 kB of the
fullest tiles there is steps / 2 times 8 bytes for each class and 8 more: likely a tile has one label and half of the
time, with data and gradients of all classes, and gradients are added up afterwards. Here a tile makes all gradients of
a few time steps, which takes less memory where there are many classes, and a time that hardly depends on them.

Why it is right: with a blank before each label and one at the end, an alignment moves through positions by 0, 1 or,
between different labels, 2 per step. So what has come to a position by step t is the sum over three positions at step t
− 1, times the probability of its label (forwards, *alpha*); what follows it is the same sum from the end (backwards,
*beta*, its own label left out). Their product is the probability of all alignments through that position, and divided
by that of the labels, which is exp(−loss), the share that the gradient takes from its class. Sums are of logarithms,
scaled by the largest term, since products of hundreds of probabilities are below what f32 holds. The two sweeps do not
depend on each other, so they share supersteps: each of t steps needs the one before it, and nothing shortens that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.graph import ComputeSet, Copy, Execute, Graph, Regions, Repeat, Sequence, Tensor, boxes
from abele.numerics import ElementType, f32, i32, u32
from abele.poplibs.popnn.ctc.codelets import (
    LOW,
    backward_codelet,
    forward_codelet,
    gather_codelet,
    gradient_codelet,
    loss_codelet,
)
from abele.poplibs.popnn.ctc.plan import Plan, over_time
from abele.poplibs.popops.elementwise.fill import fill, zero


@dataclass(frozen=True)
class Operands:
    """Operands of one call: log-probabilities f32 [steps, batch, classes], labels, both lengths."""

    data: Tensor
    labels: Tensor
    times: Tensor
    counts: Tensor


class Sweeps:
    """The sweeps of one call.

    Args:
        graph: The graph.
        plan: Split of the loss over tiles and workers.
        blank: The class that stands for no label.
        given: The operands.
        both: True if to sweep backwards too, and to keep what a gradient needs.
        body: Program that everything is appended to.
    """

    def __init__(self, graph: Graph, plan: Plan, blank: int, given: Operands, both: bool, body: Sequence) -> None:
        self.graph, self.plan, self.blank, self.given, self.both, self.body = graph, plan, blank, given, both, body
        self.tiles = plan.part_tiles.ravel()
        self.sequence = np.repeat(np.arange(plan.batch), plan.parts)
        self.part = np.tile(np.arange(plan.parts), plan.batch)
        share = plan.share
        self.emitted = self._rows(f32, plan.steps * share, "emitted")
        self.skip = self._rows(u32, share + 2, "skip")
        # Before the first position (or after the last) lie pads of probability 0, so that every worker reads two
        # neighbours.
        self.pads = -(-2 // share)
        kept = ("alpha", "beta") if both else ()
        self.history = {name: self._rows(f32, plan.padded * share, name) for name in kept}
        names = ("forward", "backward") if both else ("forward",)
        self.state = {name: [self._state(name) for _ in range(2)] for name in names}
        self.times = self._local(given.times, "time")
        self.counts = self._local(given.counts, "count")
        self.at = {name: self._rows(u32, 1, f"{name}/at") for name in names}

    def run(self) -> None:
        """Append the sweeps; the last step of both leaves its numbers in the first buffer."""
        self._gather()
        for name, buffers in self.state.items():
            zero(self.graph, self.at[name], self.body, f"{name}/start")
            for buffer in buffers:
                fill(self.graph, buffer, self.body, LOW, f"{name}/start")
        # One step more than there are, where their number is odd: beyond its time a sequence does not change.
        steps = Sequence(Execute(self._step(0)), Execute(self._step(1)))
        self.body.add(Repeat(-(-self.plan.steps // 2), steps))

    def finish(self, loss: Tensor, shown: Tensor, zero_infinity: bool) -> None:
        """Append the losses, f32 [batch]; infinite ones become 0 if ``zero_infinity``."""
        cs = self.graph.compute_set("loss")
        plan = self.plan
        row = self.state["forward"][0][:, self.pads * plan.share - 2 :]
        cs.vertices(
            loss_codelet(),
            tile=plan.part_tiles[:, 0],
            row=row,
            time=self.given.times,
            count=self.given.counts,
            loss=loss,
            shown=shown,
            most=plan.labels,
            zero=int(zero_infinity),
        )
        self.body.add(Execute(cs))

    def gradient(self, loss: Tensor, softmax: bool, zero_infinity: bool) -> Tensor:
        """Append the gradients, f32 [steps, batch, classes]."""
        plan = self.plan
        out = over_time(self.graph, plan, f32, "gradient")
        data = over_time(self.graph, plan, f32, "data")
        self.body.add(Copy(self.given.data, data[: plan.steps]))
        blocks = plan.batch * plan.blocks
        # What both sweeps kept of a block of steps, from all parts of its sequence.
        sequence, block = np.divmod(np.arange(blocks), plan.blocks)
        shape = (plan.batch, plan.parts, plan.blocks, plan.block * plan.share)
        zeros = np.zeros_like(block)
        start = np.stack([sequence, zeros, block, zeros], axis=1)
        kept: dict[str, Any] = {
            name: boxes(history.reshape(shape), start, [1, plan.parts, 1, shape[3]])
            for name, history in self.history.items()
        }
        cs = self.graph.compute_set("gradient")
        cs.vertices(
            gradient_codelet(softmax),
            tile=plan.block_tiles.ravel(),
            data=data.transpose((1, 0, 2)).reshape((blocks, plan.block * plan.classes)),
            out=out.transpose((1, 0, 2)).reshape((blocks, plan.block * plan.classes)),
            labels=self._each(self.given.labels, plan.blocks),
            time=self._each(self.given.times, plan.blocks),
            count=self._each(self.given.counts, plan.blocks),
            loss=self._each(loss, plan.blocks),
            first=block * plan.block,
            share=plan.share,
            length=plan.block,
            steps=plan.steps,
            most=plan.labels,
            blank=self.blank,
            classes=plan.classes,
            zero=int(zero_infinity),
            **kept,
        )
        self.body.add(Execute(cs))
        return out[: plan.steps]

    def _rows(self, dtype: ElementType, size: int, name: str) -> Tensor:
        """A tensor [batch · parts, size], each row where its worker is."""
        made = self.graph.variable(dtype, (len(self.tiles), size), name=name)
        return self.graph.map_rows(made, self.tiles.tolist())

    def _state(self, name: str) -> Tensor:
        """The numbers of all positions, [batch, …], with at least two pads where the sweep comes from."""
        plan = self.plan
        ends = plan.part_tiles[:, [0 if name == "forward" else -1]].repeat(self.pads, axis=1)
        rows = [ends, plan.part_tiles] if name == "forward" else [plan.part_tiles, ends]
        tiles = np.concatenate(rows, axis=1)
        made = self.graph.variable(f32, (tiles.size, plan.share), name=name)
        self.graph.map_rows(made, tiles.ravel().tolist())
        return made.reshape((plan.batch, tiles.shape[1] * plan.share))

    def _at(self, state: Tensor, positions: Int64, size: int) -> Regions:
        """``size`` numbers of each worker's sequence, from ``positions`` on."""
        return boxes(state, np.stack([self.sequence, positions], axis=1), [1, size])

    def _local(self, lengths: Tensor, name: str) -> Tensor:
        """A copy of a sequence's length beside every worker, so that no step has to fetch it."""
        made = self._rows(u32, 1, name).reshape((len(self.tiles),))
        self.body.add(Copy(self._each(lengths, self.plan.parts), made))
        return made

    def _each(self, operand: Tensor, times: int) -> Tensor:
        """Row b of ``operand`` for every vertex of sequence b."""
        wide = operand.expand_dims(1)
        shape = (self.plan.batch, times, *operand.shape[1:])
        return wide.broadcast_to(shape).reshape((self.plan.batch * times, *operand.shape[1:]))

    def _gather(self) -> None:
        """Give every worker the log-probabilities of its labels, as many steps at once as a tile has memory for."""
        plan = self.plan
        share, classes = plan.share, plan.classes
        klass = self._rows(i32, share, "class")
        by_sequence = self.given.data.transpose((1, 0, 2))
        for begin in range(0, plan.steps, plan.gather_steps):
            end = min(plan.steps, begin + plan.gather_steps)
            cs = self.graph.compute_set("gather")
            block = by_sequence[:, begin:end].reshape((plan.batch, (end - begin) * classes))
            cs.vertices(
                gather_codelet(),
                tile=self.tiles,
                data=self._each(block, plan.parts),
                labels=self._each(self.given.labels, plan.parts),
                count=self.counts,
                out=self.emitted[:, begin * share : end * share],
                skip=self.skip,
                klass=klass,
                first=self.part * share,
                most=plan.labels,
                blank=self.blank,
                classes=classes,
            )
            self.body.add(Execute(cs))

    def _step(self, turn: int) -> ComputeSet:
        """One step of all sweeps, from buffer ``turn`` to the other."""
        cs = self.graph.compute_set("step")
        plan, share = self.plan, self.plan.share
        pad = self.pads * share
        for name, buffers in self.state.items():
            forward = name == "forward"
            own = self.part * share + (pad if forward else 0)
            near = own - 1 if forward else own + share
            far = near - 1 if forward else near + 1
            more: dict[str, Any] = {"history": self.history["alpha" if forward else "beta"]} if self.both else {}
            if not forward:
                more |= {"count": self.counts, "most": plan.labels}
            cs.vertices(
                forward_codelet(self.both) if forward else backward_codelet(),
                tile=self.tiles,
                now=self._at(buffers[turn], own, share),
                near=self._at(buffers[turn], near, 1),
                far=self._at(buffers[turn], far, 1),
                out=self._at(buffers[1 - turn], own, share),
                data=self.emitted,
                skip=self.skip[:, :share] if forward else self.skip[:, 2:],
                time=self.times,
                at=self.at[name].reshape((len(self.tiles),)),
                first=self.part * share,
                steps=plan.steps,
                **more,
            )
        return cs
