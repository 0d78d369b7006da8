"""The vertices of CTC loss. Probabilities are natural logarithms, in f32.

``at`` counts the steps of a vertex itself, so that no counter has to be sent to the tiles. Lengths come as data and are
held down to what the plan allows; a label that is no class has probability 0.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from math import inf
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.codelet import InOut, Input, MultiVertex, Output, Vector, Vertex, codelet, exp, log, macro
from abele.machine import Ipu
from abele.numerics import f32, i32, u32
from abele.poplibs.poplin.linalg.costs import ADD, ENTRY, LOAD, STORE
from abele.poplibs.popnn.ctc.costs import BRANCH, EXP, LOG, gather_slots, gradient_cycles, sweep_slots

LOW = -1e30
"""The logarithm of 0: small enough to add nothing, large enough not to overflow when steps are added up."""
FLOOR = -1e29
"""Bound below which values count as 0."""


@macro
def _time(self):
    """Time steps of the sequence."""
    return i32(min(self.time, u32(self.steps)))


@macro
def _count(self):
    """Labels of the sequence."""
    return i32(min(self.count, u32(self.most)))


@macro
def _class(self, s, count):
    """The class of position ``s``."""
    c = self.blank
    if s % 2 == 1 and s // 2 < count:
        c = min(i32(min(self.labels[s // 2], u32(self.classes))), self.classes)
    return c


@macro
def _log_sum(x, y, z):
    """The logarithm of a sum of three."""
    m = max(x, max(y, z))
    return m + log(exp(x - m) + exp(y - m) + exp(z - m))


@cache
def gather_codelet() -> type:
    """Log-probabilities of the labels at a worker's positions: ``data`` [steps, classes] to ``out`` [steps, share].

    ``skip`` [share + 2] tells of each position, and of the two after the last, whether it can come two after another.
    """

    @codelet
    class CtcGather(Vertex):
        data: Input[Vector[f32]]
        labels: Input[Vector[u32]]
        count: Input[u32]
        out: Output[Vector[f32]]
        skip: Output[Vector[u32]]
        klass: Output[Vector[i32]]
        first: i32
        most: i32
        blank: i32
        classes: i32

        def compute(self):
            count = _count(self)
            share = len(self.klass)
            steps = len(self.out) // share
            for i in range(share + 2):
                s = self.first + i
                self.skip[i] = 0
                if s % 2 == 1 and s >= 3 and s // 2 < count:  # noqa: SIM102  what is inside is read only then
                    if self.labels[s // 2] != self.labels[s // 2 - 1]:
                        self.skip[i] = 1
            for i in range(share):
                s = self.first + i
                c = _class(self, s, count)
                self.klass[i] = c
            for t in range(steps):
                for i in range(share):
                    c = self.klass[i]
                    self.out[t * share + i] = LOW
                    if c < self.classes:
                        self.out[t * share + i] = max(self.data[t * self.classes + c], LOW)

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            return gather_slots(np.asarray(v.out, np.int64), np.asarray(v.klass, np.int64))

    return CtcGather


@cache
def forward_codelet(keep: bool) -> type:
    """One step forwards: log-probability of all that leads to a position, its own label included.

    ``near`` is the position before the worker's, ``far`` the one before that. After the last step nothing changes.
    """

    @codelet
    class CtcForward(Vertex):
        now: Input[Vector[f32]]
        near: Input[f32]
        far: Input[f32]
        data: Input[Vector[f32]]
        skip: Input[Vector[u32]]
        time: Input[u32]
        at: InOut[u32]
        out: Output[Vector[f32]]
        if keep:
            history: InOut[Vector[f32]]
        first: i32
        steps: i32

        def compute(self):
            time = _time(self)
            share = len(self.out)
            t = i32(self.at)
            for i in range(share):
                a = self.now[i]
                if t < time:
                    # An alignment begins at the first blank or the first label.
                    if t == 0:
                        a = f32(LOW)
                        if self.first + i < 2:
                            a = f32(0.0)
                    else:
                        # A worker holds a run of positions; what lies outside was sent to it as `near` and `far`.
                        x = a
                        y = self.near
                        if i > 0:
                            y = self.now[i - 1]
                        z = f32(LOW)
                        if self.skip[i] > 0:
                            z = self.far
                            if i > 1:
                                z = self.now[i - 2]
                            elif i == 1:
                                z = self.near
                        a = _log_sum(x, y, z)
                    a = a + self.data[t * share + i]
                    if keep:
                        self.history[t * share + i] = a
                self.out[i] = a
            self.at = u32(t + 1)

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            return sweep_slots(np.asarray(v.out, np.int64))

    return CtcForward


@cache
def backward_codelet() -> type:
    """One step backwards: log-probability of all that follows a position, its own label left out in ``history``.

    ``near`` is the position after the worker's, ``far`` the one after that; ``skip`` begins two later than forwards.
    """

    @codelet
    class CtcBackward(Vertex):
        now: Input[Vector[f32]]
        near: Input[f32]
        far: Input[f32]
        data: Input[Vector[f32]]
        skip: Input[Vector[u32]]
        time: Input[u32]
        at: InOut[u32]
        out: Output[Vector[f32]]
        history: InOut[Vector[f32]]
        first: i32
        steps: i32
        count: Input[u32]
        most: i32

        def compute(self):
            time = _time(self)
            count = _count(self)
            share = len(self.out)
            # Steps of the loop count up, time counts down; sequences that have ended begin later.
            t = time - 1 - i32(self.at)
            for i in range(share):
                a = self.now[i]
                if t >= 0:
                    # An alignment ends at the last label or the blank after it.
                    if t == time - 1:
                        a = f32(LOW)
                        s = self.first + i
                        if s <= 2 * count and s >= 2 * count - 1:
                            a = f32(0.0)
                    else:
                        x = a
                        y = self.near
                        if i + 1 < share:
                            y = self.now[i + 1]
                        z = f32(LOW)
                        if self.skip[i] > 0:
                            z = self.far
                            if i + 2 < share:
                                z = self.now[i + 2]
                            elif i + 2 == share:
                                z = self.near
                        a = _log_sum(x, y, z)
                    # `history` leaves the own label out: the forward sweep has it.
                    self.history[t * share + i] = a
                    a = a + self.data[t * share + i]
                self.out[i] = a
            self.at = self.at + u32(1)

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            return sweep_slots(np.asarray(v.out, np.int64))

    return CtcBackward


@cache
def loss_codelet() -> type:
    """Loss of a sequence: the probability at the last label and at the blank after it. ``row`` begins with two pads.

    Of no time steps the empty labels alone are possible. ``shown`` is 0 for an infinite loss if ``zero`` says so.

    Its cost counts its instructions. Source: §1.2.
    """

    @codelet
    class CtcLoss(Vertex):
        row: Input[Vector[f32]]
        time: Input[u32]
        count: Input[u32]
        loss: Output[f32]
        shown: Output[f32]
        most: i32
        zero: i32

        def compute(self):
            count = _count(self)
            x = self.row[2 * count + 2]
            y = f32(LOW)
            if count > 0:
                y = self.row[2 * count + 1]
            m = max(x, y)
            loss = -(m + log(exp(x - m) + exp(y - m)))
            if m < FLOOR:
                loss = f32(inf)
            if self.time == 0:
                loss = f32(0.0) if count == 0 else f32(inf)
            self.loss = loss
            self.shown = f32(0.0) if self.zero == 1 and loss > 1e37 else loss

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            once = ENTRY + 6 * LOAD + 6 * ADD + 2 * EXP + LOG + 5 * BRANCH + 2 * STORE[4]
            return np.full(len(v.row), once, np.int64)

    return CtcLoss


@cache
def gradient_codelet(softmax: bool) -> type:
    """Gradients of a block of time steps [steps, classes], from both sweeps' values, [parts, steps, share].

    With ``softmax`` the gradient goes through a softmax before. Beyond the time of a sequence it is 0; for an infinite
    loss it is 0 if ``zero`` says so, else not a number.
    """

    @codelet
    class CtcGradient(MultiVertex):
        alpha: Input[Vector[f32]]
        beta: Input[Vector[f32]]
        data: Input[Vector[f32]]
        labels: Input[Vector[u32]]
        time: Input[u32]
        count: Input[u32]
        loss: Input[f32]
        out: Output[Vector[f32]]
        first: i32
        share: i32
        length: i32
        steps: i32
        most: i32
        blank: i32
        classes: i32
        zero: i32

        def compute(self, worker_id):
            time = _time(self)
            count = _count(self)
            for n in range(worker_id, self.length, 6):
                row = n * self.classes
                inside = self.first + n < time
                for k in range(self.classes):
                    self.out[row + k] = 0.0
                    if inside and self.loss < 1e37:
                        self.out[row + k] = exp(self.data[row + k]) if softmax else f32(0.0)
                    elif inside and self.zero == 0:
                        self.out[row + k] = self.loss - self.loss
                if inside and self.loss < 1e37:
                    for s in range(2 * count + 1):
                        at = (s // self.share * self.length + n) * self.share + s % self.share
                        v = self.alpha[at] + self.beta[at]
                        c = _class(self, s, count)
                        if v > FLOOR and c < self.classes:
                            self.out[row + c] = self.out[row + c] - exp(v + self.loss)

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            length = np.asarray(v.length, np.int64)
            return gradient_cycles(length, np.asarray(v.classes, np.int64), np.asarray(v.alpha) // length, ipu)

    return CtcGradient
