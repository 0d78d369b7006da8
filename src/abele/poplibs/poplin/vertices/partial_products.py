"""The vertices that multiply: slices of a contraction's inputs to partial products.

On the machine these are hand-written assembly on the AMP units. Here each has a plain meaning, the sum over channels
and kernel positions read off the definition of :class:`~abele.poplibs.poplin.contraction.problem.Contraction`, and
beside it the closed form of its cost from :mod:`abele.poplibs.poplin.vertices.cost`. The loops of the meaning are not
those of the assembly (which keeps weights in the units and streams positions past them); cycles come from the closed
form alone, so the two can differ.

Both kinds read extents and strides from ``geometry``, whose elements are named in
:mod:`~abele.poplibs.poplin.vertices.geometry_fields`.

Example: a slice of 16 in-channels, 8 out-channels and 10 positions under one kernel position is 16 · 8 · 10 = 1,280
multiply-adds; its vertex writes 80 partial products.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from abele.codelet import InOut, Input, Output, SupervisorVertex, Vector, codelet
from abele.numerics import ElementType, f32, i32
from abele.poplibs.poplin.vertices import geometry_fields as at
from abele.poplibs.poplin.vertices.method import Method
from abele.poplibs.poplin.vertices.work import Work


@cache
def pointwise_partial(
    method: Method,
    x_type: ElementType,
    w_type: ElementType,
    partials: ElementType,
    scaled: Literal["", "number", "tensor"] = "",
    *,
    adds: bool = False,
) -> Any:
    """The vertex for contractions in which no field dimension mixes.

    Args:
        method: Form of the vertex.
        x_type: Element type of the input.
        w_type: Element type of the weights.
        partials: Element type of the partial products.
        scaled: Form in which it has its ``factor``; empty for none.
        adds: True to add to what is there. PopLibs' vertex does so from its second group of in-channels on; without
            zeros to write (``zerosInfo``) it does from the first on. It is taken to cost as much as to write zeros.
    """

    @codelet
    class ConvPartial1x1(SupervisorVertex):
        """Every output position times a matrix of channels."""

        least_code_bytes = method.least_code_bytes

        x: Input[Vector[x_type]]
        w: Input[Vector[w_type]]
        if adds:
            out: InOut[Vector[partials]]
        else:
            out: Output[Vector[partials]]
        geometry: Vector[i32]
        groups: i32
        in_channels: i32
        out_channels: i32
        positions: i32
        outputs: i32
        run: i32
        kernel_outer: i32
        kernel_inner: i32
        if scaled == "number":
            factor: f32
        elif scaled == "tensor":
            factor: Input[f32]

        def compute(self):
            s = self.geometry
            for g in range(s[at.NUM_G]):
                for b1 in range(s[at.NUM_B1]):
                    for b0 in range(s[at.NUM_B0]):
                        for o0 in range(s[at.NUM_O0]):
                            for o1 in range(s[at.NUM_O1]):
                                for o2 in range(s[at.NUM_O2]):
                                    # Without a kernel, an output reads the input of its own position.
                                    x_at = (
                                        g * s[at.X_G]
                                        + b1 * s[at.X_B1]
                                        + b0 * s[at.X_B0]
                                        + o0 * s[at.X_I0]
                                        + o1 * s[at.X_I1]
                                        + o2 * s[at.X_I2]
                                    )
                                    y_at = (
                                        g * s[at.Y_G]
                                        + b1 * s[at.Y_B1]
                                        + b0 * s[at.Y_B0]
                                        + o0 * s[at.Y_O0]
                                        + o1 * s[at.Y_O1]
                                        + o2 * s[at.Y_O2]
                                    )
                                    # Channels are stored in blocks: `1` counts blocks, `0` the channels of one.
                                    for co1 in range(s[at.NUM_CO1]):
                                        for co0 in range(s[at.NUM_CO0]):
                                            w_at = g * s[at.W_G] + co1 * s[at.W_CO1] + co0 * s[at.W_CO0]
                                            # One output sums over all in-channels, in f32 whatever the partials are.
                                            total = f32(0.0)
                                            for ci1 in range(s[at.NUM_CI1]):
                                                for ci0 in range(s[at.NUM_CI0]):
                                                    total += f32(self.x[x_at + ci1 * s[at.X_CI1] + ci0]) * f32(
                                                        self.w[w_at + ci1 * s[at.W_CI1] + ci0]
                                                    )
                                            if scaled != "":
                                                total *= self.factor
                                            place = y_at + co1 * s[at.Y_CO1] + co0 * s[at.Y_CO0]
                                            if adds:
                                                total += f32(self.out[place])
                                            self.out[place] = partials(total)

        @staticmethod
        def cycles(v, ipu):
            return method.cycles(_work(v, x_type, partials), _load_bytes(method, ipu))

        @staticmethod
        def state_bytes(v, ipu):
            return method.state_bytes(_work(v, x_type, partials), ipu.tile.compact_pointer_bytes)

    return ConvPartial1x1


@cache
def field_partial(
    method: Method,
    x_type: ElementType,
    w_type: ElementType,
    partials: ElementType,
    scaled: Literal["", "number", "tensor"] = "",
) -> Any:
    """The vertex for contractions over a field.

    The vertical kind takes every out-channel from the in-channel of the same number alone. A kernel position that meets
    no input (padding, or a hole of a dilated input) is passed over: its product would be zero.
    """
    vertical = method.kind == "vmac"
    buffered = method.kind in ("vmac", "slic")

    @codelet
    class ConvPartialNx1(SupervisorVertex):
        """Every kernel position times the inputs that it meets, summed."""

        least_code_bytes = method.least_code_bytes

        x: Input[Vector[x_type]]
        w: Input[Vector[w_type]]
        out: Output[Vector[partials]]
        if buffered:
            buffer: Output[Vector[partials]]
        geometry: Vector[i32]
        groups: i32
        in_channels: i32
        out_channels: i32
        positions: i32
        outputs: i32
        run: i32
        kernel_outer: i32
        kernel_inner: i32
        if scaled == "number":
            factor: f32
        elif scaled == "tensor":
            factor: Input[f32]

        def compute(self):
            # Sums are here in a register, and what the assembly keeps in its buffer is never read.
            s = self.geometry
            for g in range(s[at.NUM_G]):
                for co1 in range(s[at.NUM_CO1]):
                    for co0 in range(s[at.NUM_CO0]):
                        # Weights of one out-channel stay the same for all samples and positions.
                        w_at = g * s[at.W_G] + co1 * s[at.W_CO1] + co0 * s[at.W_CO0]
                        for b1 in range(s[at.NUM_B1]):
                            for b0 in range(s[at.NUM_B0]):
                                x_at = g * s[at.X_G] + b1 * s[at.X_B1] + b0 * s[at.X_B0]
                                y_at = (
                                    g * s[at.Y_G]
                                    + b1 * s[at.Y_B1]
                                    + b0 * s[at.Y_B0]
                                    + co1 * s[at.Y_CO1]
                                    + co0 * s[at.Y_CO0]
                                )
                                for o0 in range(s[at.NUM_O0]):
                                    for o1 in range(s[at.NUM_O1]):
                                        for o2 in range(s[at.NUM_O2]):
                                            total = f32(0.0)
                                            # Output o meets kernel position k at p, in units of input steps: that is an
                                            # input if it is in the slice and no hole of a dilated input.
                                            for k0 in range(s[at.NUM_K0]):
                                                p0 = s[at.OUT_STEP0] * o0 + s[at.KERNEL_STEP0] * k0 + s[at.OFFSET0]
                                                if (
                                                    p0 >= 0
                                                    and p0 < s[at.IN_STEP0] * s[at.NUM_I0]
                                                    and p0 % s[at.IN_STEP0] == 0
                                                ):
                                                    x0 = x_at + p0 // s[at.IN_STEP0] * s[at.X_I0]
                                                    w0 = w_at + k0 * s[at.W_K0]
                                                    for k1 in range(s[at.NUM_K1]):
                                                        p1 = (
                                                            s[at.OUT_STEP1] * o1
                                                            + s[at.KERNEL_STEP1] * k1
                                                            + s[at.OFFSET1]
                                                        )
                                                        if (
                                                            p1 >= 0
                                                            and p1 < s[at.IN_STEP1] * s[at.NUM_I1]
                                                            and p1 % s[at.IN_STEP1] == 0
                                                        ):
                                                            x1 = x0 + p1 // s[at.IN_STEP1] * s[at.X_I1]
                                                            w1 = w0 + k1 * s[at.W_K1]
                                                            for k2 in range(s[at.NUM_K2]):
                                                                p2 = (
                                                                    s[at.OUT_STEP2] * o2
                                                                    + s[at.KERNEL_STEP2] * k2
                                                                    + s[at.OFFSET2]
                                                                )
                                                                if (
                                                                    p2 >= 0
                                                                    and p2 < s[at.IN_STEP2] * s[at.NUM_I2]
                                                                    and p2 % s[at.IN_STEP2] == 0
                                                                ):
                                                                    x2 = x1 + p2 // s[at.IN_STEP2] * s[at.X_I2]
                                                                    w2 = w1 + k2 * s[at.W_K2]
                                                                    # Depthwise weights have no in-channels to sum over.
                                                                    if vertical:
                                                                        x_here = f32(self.x[x2 + co0])
                                                                        total += x_here * f32(self.w[w2 + co0])
                                                                    else:
                                                                        for ci1 in range(s[at.NUM_CI1]):
                                                                            for ci0 in range(s[at.NUM_CI0]):
                                                                                total += f32(
                                                                                    self.x[x2 + ci1 * s[at.X_CI1] + ci0]
                                                                                ) * f32(
                                                                                    self.w[w2 + ci1 * s[at.W_CI1] + ci0]
                                                                                )
                                            if scaled != "":
                                                total *= self.factor
                                            self.out[y_at + o0 * s[at.Y_O0] + o1 * s[at.Y_O1] + o2 * s[at.Y_O2]] = (
                                                partials(total)
                                            )

        @staticmethod
        def cycles(v, ipu):
            return method.cycles(_work(v, x_type, partials), _load_bytes(method, ipu))

        @staticmethod
        def state_bytes(v, ipu):
            return method.state_bytes(_work(v, x_type, partials), ipu.tile.compact_pointer_bytes)

    return ConvPartialNx1


def _load_bytes(method: Method, ipu: Any) -> int:
    """Bytes of weights that enter the matrix units in a cycle."""
    return ipu.amp.wide_weight_load_bytes_per_cycle if method.wide_loads else ipu.amp.weight_load_bytes_per_cycle


def _work(v: Any, dtype: ElementType, partials: ElementType) -> Work:
    """The sizes of a group's vertices, from their state."""
    return Work(
        dtype=dtype,
        partials=partials,
        groups=v.groups,
        in_channels=v.in_channels,
        out_channels=v.out_channels,
        positions=v.positions,
        outputs=v.outputs,
        run=v.run,
        kernel_outer=v.kernel_outer,
        kernel_inner=v.kernel_inner,
    )
