"""The vertices of CTC loss. Probabilities are natural logarithms, in f32.

``at`` counts the steps of a vertex itself, so that no counter has to be sent to the tiles. Lengths come as data and are
held down to what the plan allows; a label that is no class has probability 0.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.machine import Ipu
from abele.poplibs.poplin.linalg.costs import ADD, ENTRY, INDEX, LOAD, LOOP, MULTIPLY, STORE, SUPERVISOR_CYCLES
from abele.poplibs.popops.expressions.generated import build

Int64 = npt.NDArray[np.int64]

LOW = -1e30
"""The logarithm of 0: small enough to add nothing, large enough not to overflow when steps are added up."""
FLOOR = -1e29
"""Whatever is below stands for 0."""
EXP, LOG = 3, 6
"""Issue slots of an exponential and a logarithm of one f32. Source: machine reference §1.3."""
BRANCH = 1
"""Source: machine reference §1.2."""


def sweep_slots(share: Int64) -> Int64:
    """Slots of one step of a worker: at each position, three numbers are loaded and log-added, one is added, two kept.

    Source: §1.2, scalar instructions, one per bundle.
    """
    # Two maxima; three differences and exponentials; two sums of these, the logarithm, and the maximum added back.
    log_add = 2 * ADD + 3 * (ADD + EXP) + 2 * ADD + LOG + ADD
    position = 4 * LOAD + BRANCH + log_add + LOAD + ADD + 2 * STORE[4] + LOOP
    counter = 2 * LOAD + ADD + 2 * BRANCH + STORE[4] + MULTIPLY + ADD
    return np.asarray(ENTRY + counter + np.asarray(share, np.int64) * position, np.int64)


def gather_slots(elements: Int64, share: Int64) -> Int64:
    """Slots to fetch ``elements`` log-probabilities by class, after finding the classes of ``share`` positions."""
    classes = share * (2 * LOAD + INDEX + 3 * BRANCH + 2 * STORE[4] + LOOP)
    return np.asarray(ENTRY + classes + elements * (2 * LOAD + INDEX + ADD + STORE[4] + LOOP), np.int64)


def gradient_cycles(steps: Int64, classes: Int64, positions: Int64, ipu: Ipu) -> Int64:
    """Tile cycles to add probabilities of all positions up by class, at each of ``steps``, shared by the workers."""
    position = 3 * LOAD + INDEX + 2 * ADD + BRANCH + EXP + 2 * LOAD + ADD + STORE[4] + LOOP
    each = classes * (LOAD + EXP + STORE[4] + LOOP) + positions * position
    slots = ENTRY + -(-steps // ipu.num_workers) * (each + INDEX + LOOP)
    return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * slots, np.int64)


_LENGTHS = ["time = i32(min(self.time, u32(self.steps)))", "count = i32(min(self.count, u32(self.most)))"]
_CLASS = [
    "c = self.blank",
    "if s % 2 == 1 and s // 2 < count:",
    "    c = min(i32(min(self.labels[s // 2], u32(self.classes))), self.classes)",
]


@cache
def gather_codelet() -> type:
    """Log-probabilities of the labels at a worker's positions: ``data`` [steps, classes] to ``out`` [steps, share].

    ``skip`` [share + 2] tells of each position, and of the two after the last, whether it can come two after another.
    """
    fields = ["data: Input[Vector[f32]]", "labels: Input[Vector[u32]]", "count: Input[u32]"]
    fields += ["out: Output[Vector[f32]]", "skip: Output[Vector[u32]]", "klass: Output[Vector[i32]]"]
    fields += ["first: i32", "most: i32", "blank: i32", "classes: i32"]
    lines = [
        _LENGTHS[1],
        "share = len(self.klass)",
        "steps = len(self.out) // share",
        "for i in range(share + 2):",
        "    s = self.first + i",
        "    self.skip[i] = 0",
        "    if s % 2 == 1 and s >= 3 and s // 2 < count:",
        "        if self.labels[s // 2] != self.labels[s // 2 - 1]:",
        "            self.skip[i] = 1",
        "for i in range(share):",
        "    s = self.first + i",
        *(f"    {line}" for line in _CLASS),
        "    self.klass[i] = c",
        "for t in range(steps):",
        "    for i in range(share):",
        "        c = self.klass[i]",
        f"        self.out[t * share + i] = {LOW}",
        "        if c < self.classes:",
        f"            self.out[t * share + i] = max(self.data[t * self.classes + c], {LOW})",
    ]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        return gather_slots(np.asarray(v.out, np.int64), np.asarray(v.klass, np.int64))

    return build("CtcGather", "Vertex", fields, lines, cycles)


def _sum_of_three(one_inside: str, two_inside: str, two_near: str, way: str) -> list[str]:
    """Statements for the logarithm ``a`` of the sum over a position and those one and, perhaps, two away.

    The others are the worker's own where the conditions say so, else those that came from outside.
    """
    # A worker holds a run of positions; what lies outside was sent to it as `near` and `far`.
    others = ["y = self.near", f"if {one_inside}:", f"    y = self.now[i {way} 1]", f"z = f32({LOW})"]
    others += ["if self.skip[i] > 0:", "    z = self.far", f"    if {two_inside}:", f"        z = self.now[i {way} 2]"]
    others += [f"    elif {two_near}:", "        z = self.near"]
    lines = ["x = a", *others, "m = max(x, max(y, z))", "a = m + log(exp(x - m) + exp(y - m) + exp(z - m))"]
    return [f"            {line}" for line in lines]


def _sweep_fields(keep: bool) -> list[str]:
    fields = [
        "now: Input[Vector[f32]]",
        "near: Input[f32]",
        "far: Input[f32]",
        "data: Input[Vector[f32]]",
        "skip: Input[Vector[u32]]",
    ]
    fields += ["time: Input[u32]", "at: InOut[u32]", "out: Output[Vector[f32]]"]
    fields += ["history: InOut[Vector[f32]]"] if keep else []
    return [*fields, "first: i32", "steps: i32"]


def _sweep_cycles(v: Any, ipu: Ipu) -> Int64:
    return sweep_slots(np.asarray(v.out, np.int64))


@cache
def forward_codelet(keep: bool) -> type:
    """One step forwards: log-probability of all that leads to a position, its own label included.

    ``near`` is the position before the worker's, ``far`` the one before that. After the last step nothing changes.
    """
    held = ["        self.history[t * share + i] = a"] if keep else []
    lines = [
        _LENGTHS[0],
        "share = len(self.out)",
        "t = i32(self.at)",
        "for i in range(share):",
        "    a = self.now[i]",
        "    if t < time:",
        "        if t == 0:",
        f"            a = f32({LOW})",
        "            if self.first + i < 2:",
        "                a = f32(0.0)",
        "        else:",
        *_sum_of_three("i > 0", "i > 1", "i == 1", "-"),
        "        a = a + self.data[t * share + i]",
        *held,
        "    self.out[i] = a",
        "self.at = u32(t + 1)",
    ]
    return build("CtcForward", "Vertex", _sweep_fields(keep), lines, _sweep_cycles)


@cache
def backward_codelet() -> type:
    """One step backwards: log-probability of all that follows a position, its own label left out in ``history``.

    ``near`` is the position after the worker's, ``far`` the one after that; ``skip`` begins two later than forwards.
    """
    lines = [
        _LENGTHS[0],
        _LENGTHS[1],
        "share = len(self.out)",
        "t = time - 1 - i32(self.at)",
        "for i in range(share):",
        "    a = self.now[i]",
        "    if t >= 0:",
        "        if t == time - 1:",
        f"            a = f32({LOW})",
        "            s = self.first + i",
        "            if s <= 2 * count and s >= 2 * count - 1:",
        "                a = f32(0.0)",
        "        else:",
        *_sum_of_three("i + 1 < share", "i + 2 < share", "i + 2 == share", "+"),
        "        self.history[t * share + i] = a",
        "        a = a + self.data[t * share + i]",
        "    self.out[i] = a",
        "self.at = self.at + u32(1)",
    ]
    fields = [*_sweep_fields(True), "count: Input[u32]", "most: i32"]
    return build("CtcBackward", "Vertex", fields, lines, _sweep_cycles)


@cache
def loss_codelet() -> type:
    """The loss of a sequence: what has come to the last label, or to the blank after it. ``row`` begins with two pads.

    Of no time steps the empty labels alone are possible. ``shown`` is 0 for an infinite loss if ``zero`` says so.
    """
    fields = ["row: Input[Vector[f32]]", "time: Input[u32]", "count: Input[u32]"]
    fields += ["loss: Output[f32]", "shown: Output[f32]", "most: i32", "zero: i32"]
    lines = [
        _LENGTHS[1],
        "x = self.row[2 * count + 2]",
        f"y = f32({LOW})",
        "if count > 0:",
        "    y = self.row[2 * count + 1]",
        "m = max(x, y)",
        "loss = -(m + log(exp(x - m) + exp(y - m)))",
        f"if m < {FLOOR}:",
        "    loss = f32(INF)",
        "if self.time == 0:",
        "    loss = f32(0.0) if count == 0 else f32(INF)",
        "self.loss = loss",
        "self.shown = f32(0.0) if self.zero == 1 and loss > 1e37 else loss",
    ]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        once = ENTRY + 6 * LOAD + 6 * ADD + 2 * EXP + LOG + 5 * BRANCH + 2 * STORE[4]
        return np.full(len(v.row), once, np.int64)

    return build("CtcLoss", "Vertex", fields, lines, cycles)


@cache
def gradient_codelet(softmax: bool) -> type:
    """Gradients of a block of time steps [steps, classes], from what both sweeps kept, [parts, steps, share].

    With ``softmax`` the gradient goes through a softmax before. Beyond the time of a sequence it is 0; for an infinite
    loss it is 0 if ``zero`` says so, else not a number.
    """
    fields = ["alpha: Input[Vector[f32]]", "beta: Input[Vector[f32]]", "data: Input[Vector[f32]]"]
    fields += ["labels: Input[Vector[u32]]", "time: Input[u32]", "count: Input[u32]", "loss: Input[f32]"]
    fields += ["out: Output[Vector[f32]]", "first: i32", "share: i32", "length: i32"]
    fields += ["steps: i32", "most: i32", "blank: i32", "classes: i32", "zero: i32"]
    start = "exp(self.data[row + k])" if softmax else "f32(0.0)"
    lines = [
        *_LENGTHS,
        "for n in range(worker_id, self.length, 6):",
        "    row = n * self.classes",
        "    inside = self.first + n < time",
        "    for k in range(self.classes):",
        "        self.out[row + k] = 0.0",
        "        if inside and self.loss < 1e37:",
        f"            self.out[row + k] = {start}",
        "        elif inside and self.zero == 0:",
        "            self.out[row + k] = self.loss - self.loss",
        "    if inside and self.loss < 1e37:",
        "        for s in range(2 * count + 1):",
        "            at = (s // self.share * self.length + n) * self.share + s % self.share",
        "            v = self.alpha[at] + self.beta[at]",
        *(f"            {line}" for line in _CLASS),
        f"            if v > {FLOOR} and c < self.classes:",
        "                self.out[row + c] = self.out[row + c] - exp(v + self.loss)",
    ]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        length = np.asarray(v.length, np.int64)
        return gradient_cycles(length, np.asarray(v.classes, np.int64), np.asarray(v.alpha) // length, ipu)

    return build("CtcGradient", "MultiVertex", fields, lines, cycles)
