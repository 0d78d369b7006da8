"""The vertices of beam search. Scores are natural logarithms of probabilities, in f32.

A beam is a label sequence with the log-probabilities that the alignments of it so far end in a blank (``blank``) or in
its last label (``label``), and of both (``total``). ``last`` is its last label, −1 of the empty one. ``parent`` is the
beam that it extends, if that one is kept too, else −1: such an extension is the beam itself, and is added to it.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from math import inf
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, exp, log, macro
from abele.machine import Ipu
from abele.numerics import ElementType, f32, i32, u32
from abele.poplibs.popnn.ctc_infer.costs import extend_slots, read_slots, select_slots

LOW = -1e30
"""The logarithm of 0: small enough to add nothing, large enough not to overflow when steps are added up."""
FLOOR = -1e29
"""Bound below which scores count as probability 0."""


@cache
def extend_codelet(dtype: ElementType) -> type:
    """The best extensions of all beams by some classes, best first; equal ones in order of beam and symbol.

    ``data`` is [classes, steps], of which step ``at`` counts. ``own`` gets the scores of each beam's last label, and
    of the blank, where they are among these classes, else LOW.
    """

    @codelet
    class ExtendBeams(Vertex):
        data: Input[Vector[dtype]]
        at: Input[u32]
        blank: Input[Vector[f32]]
        total: Input[Vector[f32]]
        last: Input[Vector[i32]]
        parent: Input[Vector[i32]]
        score: Output[Vector[f32]]
        beam: Output[Vector[i32]]
        symbol: Output[Vector[i32]]
        own: Output[Vector[f32]]
        first: i32
        steps: i32
        void: i32

        def compute(self):
            w = len(self.total)
            classes = len(self.data) // self.steps
            t = i32(self.at)
            # Start with no extensions, and note the score of each beam's last label if this tile has it.
            for j in range(w):
                self.score[j] = LOW
                self.beam[j] = -1
                self.symbol[j] = -1
                self.own[j] = LOW
                mine = self.last[j] - self.first
                if mine >= 0 and mine < classes:
                    self.own[j] = max(f32(self.data[mine * self.steps + t]), LOW)
            self.own[w] = LOW
            # The same for the blank.
            b = self.void - self.first
            if b >= 0 and b < classes:
                self.own[w] = max(f32(self.data[b * self.steps + t]), LOW)
            # Extend every live beam by every class. A repeated label needs a blank before it, so only the part of the
            # beam's probability that ends in a blank counts.
            for i in range(w):
                if self.total[i] > FLOOR:
                    for c in range(classes):
                        s = f32(self.data[c * self.steps + t])
                        symbol = self.first + c
                        if symbol == self.last[i]:  # noqa: SIM108  a choice costs other instructions
                            s = s + self.blank[i]
                        else:
                            s = s + self.total[i]
                        if symbol != self.void and s > self.score[w - 1] and s > FLOOR:
                            # Another beam may be this extension already: then both would count the same labels twice.
                            known = 0
                            for j in range(w):
                                if self.parent[j] == i and self.last[j] == symbol:
                                    known = 1
                            if known == 0:
                                # Insert by score. Equal scores stay behind, so the order of beams and classes decides.
                                p = w - 1
                                while p > 0 and self.score[max(p - 1, 0)] < s:
                                    self.score[p] = self.score[p - 1]
                                    self.beam[p] = self.beam[p - 1]
                                    self.symbol[p] = self.symbol[p - 1]
                                    p = p - 1
                                self.score[p] = s
                                self.beam[p] = i
                                self.symbol[p] = symbol

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            return extend_slots(np.asarray(v.data) // np.asarray(v.steps), np.asarray(v.total, np.int64))

    return ExtendBeams


@macro
def _log_add(a, b):
    """log(exp a + exp b)."""
    high = max(a, b)
    return high + log(1.0 + exp(min(a, b) - high))


@macro
def _staying(self, w, parts):
    """Scores of the beams that are not extended: ``stay`` is [3, w], as blank, label, total."""
    void = f32(LOW)
    for p in range(parts):
        self.head[p] = 0
        void = max(void, self.own[p * (w + 1) + w])
    for j in range(w):
        y = f32(LOW)
        for p in range(parts):
            y = max(y, self.own[p * (w + 1) + j])
        here = self.label[j] + y
        of = self.parent[j]
        if of >= 0:
            other = y + self.total[of]
            if self.last[of] == self.last[j]:
                other = y + self.blank[of]
            both = _log_add(here, other)
            here = both
        silent = self.total[j] + void
        self.stay[j] = silent
        self.stay[w + j] = here
        sum = _log_add(silent, here)
        self.stay[2 * w + j] = sum
        self.taken[j] = 0


@macro
def _choosing(self, w, parts):
    """The best ``w`` of all, best first: origin and added label of each; ``chosen`` is [2, w], blank and label."""
    for k in range(w):
        best = f32(FLOOR)
        kept = -1
        for j in range(w):
            if self.taken[j] == 0 and self.stay[2 * w + j] > best:
                best = self.stay[2 * w + j]
                kept = j
        part = -1
        beam = i32(0)
        symbol = i32(0)
        for p in range(parts):
            if self.head[p] < w:
                at = p * w + self.head[p]
                s = self.score[at]
                whose = self.beam[at]
                which = self.symbol[at]
                earlier = whose < beam or (whose == beam and which < symbol)
                if s > best or (s == best and part >= 0 and earlier):
                    best = s
                    part = p
                    beam = whose
                    symbol = which
        self.chosen[k] = LOW
        self.chosen[w + k] = LOW
        self.origin[k] = -1
        self.added[k] = -1
        if part >= 0:
            self.head[part] = self.head[part] + 1
            self.origin[k] = beam
            self.added[k] = symbol
            self.chosen[w + k] = best
        elif kept >= 0:
            self.taken[kept] = 1
            self.origin[k] = kept
            self.chosen[k] = self.stay[kept]
            self.chosen[w + k] = self.stay[w + kept]


@macro
def _moving(self, w, t):
    """Move the chosen beams to their places; each extension adds a label to its parent's."""
    for k in range(w):
        source = self.origin[k]
        end = i32(0)
        n = i32(0)
        if source >= 0:
            end = self.node[source]
            n = self.lengths[source]
            if self.added[k] >= 0:
                fresh = t * i32(w) + i32(k) + 1
                self.before[fresh] = end
                self.labels[fresh] = self.added[k]
                end = fresh
                n = n + 1
        self.origin[k] = end
        self.added[k] = n
    for k in range(w):
        self.node[k] = self.origin[k]
        self.lengths[k] = self.added[k]
        self.last[k] = -1
        if self.added[k] > 0:
            self.last[k] = self.labels[self.origin[k]]
        self.blank[k] = self.chosen[k]
        self.label[k] = self.chosen[w + k]
        sum = _log_add(self.chosen[k], self.chosen[w + k])
        self.total[k] = sum


@macro
def _relating(self, w):
    """Parent beam of each beam, if it is there: labels are compared, as a beam may have gone and come back."""
    for j in range(w):
        self.parent[j] = -1
        if self.lengths[j] > 0:
            for i in range(w):
                if self.lengths[i] == self.lengths[j] - 1 and self.total[i] > FLOOR:
                    x = self.before[self.node[j]]
                    z = self.node[i]
                    while x != z and self.labels[x] == self.labels[z]:
                        x = self.before[x]
                        z = self.before[z]
                    if x == z:
                        self.parent[j] = i


@cache
def select_codelet() -> type:
    """The beams of the next step: the best of those that stay and of all extensions. Past ``length`` nothing changes.

    ``score``, ``beam`` and ``symbol`` are [parts, w], ``own`` [parts, w + 1]. Labels form a tree: ``labels`` and
    ``before``, [1 + steps · w], have a label and the place of the one before it; place 0 is the empty beam's, and
    ``node`` [w] the place of each beam's last label. ``lengths`` [w] counts its labels. The rest is scratch.
    """

    @codelet
    class SelectBeams(Vertex):
        at: Input[u32]
        length: Input[u32]
        score: Input[Vector[f32]]
        own: Input[Vector[f32]]
        blank: InOut[Vector[f32]]
        label: InOut[Vector[f32]]
        total: InOut[Vector[f32]]
        stay: Output[Vector[f32]]
        chosen: Output[Vector[f32]]
        beam: Input[Vector[i32]]
        symbol: Input[Vector[i32]]
        last: InOut[Vector[i32]]
        parent: InOut[Vector[i32]]
        node: InOut[Vector[i32]]
        lengths: InOut[Vector[i32]]
        before: InOut[Vector[i32]]
        labels: InOut[Vector[i32]]
        head: Output[Vector[i32]]
        taken: Output[Vector[i32]]
        origin: Output[Vector[i32]]
        added: Output[Vector[i32]]

        def compute(self):
            t = i32(self.at)
            if self.at < self.length:
                w = len(self.total)
                parts = len(self.head)
                _staying(self, w, parts)
                _choosing(self, w, parts)
                _moving(self, w, t)
                _relating(self, w)

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            return select_slots(np.asarray(v.head, np.int64), np.asarray(v.total, np.int64))

    return SelectBeams


@cache
def read_codelet(dtype: ElementType) -> type:
    """The best beams at the end: log-probability, length and labels, the blank where a label sequence has ended."""

    @codelet
    class ReadBeams(Vertex):
        node: Input[Vector[i32]]
        lengths: Input[Vector[i32]]
        before: Input[Vector[i32]]
        labels: Input[Vector[i32]]
        total: Input[Vector[f32]]
        score: Output[Vector[dtype]]
        sizes: Output[Vector[u32]]
        paths: Output[Vector[u32]]
        steps: i32
        void: i32

        def compute(self):
            for k in range(len(self.score)):
                self.score[k] = dtype(self.total[k]) if self.total[k] > FLOOR else -inf
                n = self.lengths[k]
                self.sizes[k] = u32(n)
                for q in range(n, self.steps):
                    self.paths[k * self.steps + q] = u32(self.void)
                at = self.node[k]
                for q in range(n):
                    self.paths[k * self.steps + n - 1 - q] = u32(self.labels[at])
                    at = self.before[at]

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            return read_slots(np.asarray(v.score, np.int64), np.asarray(v.steps, np.int64))

    return ReadBeams
