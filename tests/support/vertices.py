"""Small vertices that tests of several rooms run."""

from __future__ import annotations

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet
from abele.numerics import f32, i32


@codelet
class AddOne(Vertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] = self.x[i] + 1.0


@codelet
class Negate(Vertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] = -self.x[i]


@codelet
class Halve(Vertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] = self.x[i] * 0.5


@codelet
class Double(Vertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] = self.x[i] * 2


@codelet
class Saxpy(Vertex):
    x: Input[Vector[f32]]
    y: InOut[Vector[f32]]
    a: f32

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] += self.a * self.x[i]


@codelet
class Increment(Vertex):
    y: InOut[Vector[f32]]

    def compute(self):
        for i in range(len(self.y)):
            self.y[i] += 1.0


@codelet
class Scale(Vertex):
    x: InOut[Vector[f32]]

    def compute(self):
        for i in range(len(self.x)):
            self.x[i] *= 2.0


@codelet
class Down(Vertex):
    left: InOut[i32]

    def compute(self):
        self.left -= 1


@codelet
class Spin(Vertex):
    """Takes as long as its input says."""

    trips: Input[i32]
    total: InOut[i32]

    def compute(self):
        count = 0
        while count < self.trips:
            count += 1
        self.total += count


@codelet
class OutOfRange(Vertex):
    """Reads the element behind its last."""

    x: Input[Vector[f32]]
    y: Output[f32]

    def compute(self):
        self.y = self.x[len(self.x)]
