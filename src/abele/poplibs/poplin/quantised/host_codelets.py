"""The host's product of few rows with quantised weights: every code is read once, for all rows of the other operand.

A vertex makes some of the outputs. It first copies x to f32, in the order of the codes. A byte of int4 holds an even
column's code in its low nibble and an odd one's in the high: ``byte = low + 16 · high``, so that

    low · x_even + high · x_odd = low · (x_even - x_odd / 16) + byte · (x_odd / 16)

and the high nibble needs no shift. Then it goes over ``rows`` rows of codes at a time: one where groups are short, as
memory brings one long stretch sooner than four (11.9 against 8.0 GB/s of int4 on one thread, others busy). Sums of a
group stay in registers, ``width`` lanes for each row of codes and row of x, and are multiplied by its scale into
the row's own. Offsets are multiplied by the sums of x over their groups, many groups at once.

Example: int4 in groups of 64, one row of x: a group of a row is two loads of 16 bytes, each widened, masked, converted
twice and multiplied twice, then one product with the scale: 13 vector instructions for 64 weights.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, macro
from abele.numerics import ElementType, f32, i32, i64


@dataclass(frozen=True)
class QuantisedLoop:
    """Settings of the loops of a product.

    Attributes:
        kind: Kind of the codes.
        batch: Rows of x, 1 to 8.
        rows: Rows of codes that are gone over together: 1, 2 or 4.
        width: Bytes of codes that are taken together.
        blocks: Widths of a group, if they are few and fill it; 0 if a number of the vertex says how many.
        per_byte: Codes of a byte.
        centre: Code of zero, for int4 without offsets.
        offsets: True if groups have offsets.
        sums: True if sums of x are needed, for offsets or the centre.
    """

    kind: str
    batch: int
    rows: int
    width: int
    blocks: int
    per_byte: int
    centre: int
    offsets: bool
    sums: bool

    @property
    def room(self) -> int:
        """Numbers of the sums of ``rows`` rows."""
        return self.rows * self.batch * self.width


@macro
def _one(self, how, at, px):
    """The weights of one byte times x, before scale and offset."""
    if how.per_byte == 2:
        code = i32(self.codes[at])
        return f32(code & 15) * self.x_low[px] + f32(code) * self.x_high[px]
    return f32(self.codes[at]) * self.x_low[px]


@macro
def _more(self, how, total, at, px):
    """``total`` plus the weights of one byte times x."""
    if how.per_byte == 2:
        code = i32(self.codes[at])
        low = f32(code & 15) * self.x_low[px] + total
        return f32(code) * self.x_high[px] + low
    return f32(self.codes[at]) * self.x_low[px] + total


@macro
def _lane(self, how, at, px):
    """A lane of a group of up to eight widths."""
    width = how.width
    total = _one(self, how, at, px)
    if how.blocks > 1:
        total = _more(self, how, total, at + width, px + width)
    if how.blocks > 2:
        total = _more(self, how, total, at + 2 * width, px + 2 * width)
    if how.blocks > 3:
        total = _more(self, how, total, at + 3 * width, px + 3 * width)
    if how.blocks > 4:
        total = _more(self, how, total, at + 4 * width, px + 4 * width)
    if how.blocks > 5:
        total = _more(self, how, total, at + 5 * width, px + 5 * width)
    if how.blocks > 6:
        total = _more(self, how, total, at + 6 * width, px + 6 * width)
    if how.blocks > 7:
        total = _more(self, how, total, at + 7 * width, px + 7 * width)
    return total


@macro
def _group(self, how, at, px, to, stride, scale):
    """A lane of a group of one row of codes, by its scale, into the row's sums with every row of x."""
    width = how.width
    self.t[to] += scale * _lane(self, how, at, px)
    if how.batch > 1:
        self.t[to + width] += scale * _lane(self, how, at, px + stride)
    if how.batch > 2:
        self.t[to + 2 * width] += scale * _lane(self, how, at, px + 2 * stride)
    if how.batch > 3:
        self.t[to + 3 * width] += scale * _lane(self, how, at, px + 3 * stride)
    if how.batch > 4:
        self.t[to + 4 * width] += scale * _lane(self, how, at, px + 4 * stride)
    if how.batch > 5:
        self.t[to + 5 * width] += scale * _lane(self, how, at, px + 5 * stride)
    if how.batch > 6:
        self.t[to + 6 * width] += scale * _lane(self, how, at, px + 6 * stride)
    if how.batch > 7:
        self.t[to + 7 * width] += scale * _lane(self, how, at, px + 7 * stride)


@macro
def _add(self, how, at, px, to, stride):
    """Add the weights of one byte times every row of x to a lane of a long group."""
    width = how.width
    self.s[to] = _more(self, how, self.s[to], at, px)
    if how.batch > 1:
        self.s[to + width] = _more(self, how, self.s[to + width], at, px + stride)
    if how.batch > 2:
        self.s[to + 2 * width] = _more(self, how, self.s[to + 2 * width], at, px + 2 * stride)
    if how.batch > 3:
        self.s[to + 3 * width] = _more(self, how, self.s[to + 3 * width], at, px + 3 * stride)
    if how.batch > 4:
        self.s[to + 4 * width] = _more(self, how, self.s[to + 4 * width], at, px + 4 * stride)
    if how.batch > 5:
        self.s[to + 5 * width] = _more(self, how, self.s[to + 5 * width], at, px + 5 * stride)
    if how.batch > 6:
        self.s[to + 6 * width] = _more(self, how, self.s[to + 6 * width], at, px + 6 * stride)
    if how.batch > 7:
        self.s[to + 7 * width] = _more(self, how, self.s[to + 7 * width], at, px + 7 * stride)


@macro
def _bytes(self, how, at, apart, px, stride, R, count):
    """Add ``count`` bytes of R rows, ``apart`` bytes from each other."""
    size = how.batch * how.width
    for c in range(count):
        _add(self, how, at + c, px + c, c, stride)
        if R > 1:
            _add(self, how, at + apart + c, px + c, size + c, stride)
        if R > 2:
            _add(self, how, at + 2 * apart + c, px + c, 2 * size + c, stride)
            _add(self, how, at + 3 * apart + c, px + c, 3 * size + c, stride)


@macro
def _long_group(self, how, at, apart, px, place, groups, stride, blocks, rest, R):
    """A group of many widths of R rows of codes."""
    size = how.batch * how.width
    for i in range(R * size):
        self.s[i] = f32(0.0)
    for n in range(blocks):
        _bytes(self, how, at + n * how.width, apart, px + n * how.width, stride, R=R, count=how.width)
    done = blocks * how.width
    _bytes(self, how, at + done, apart, px + done, stride, R=R, count=rest)
    for r in range(R):
        scale = f32(self.scales[place + r * groups])
        for c in range(size):
            self.t[r * size + c] += scale * self.s[r * size + c]


@macro
def _short_group(self, how, at, apart, px, g, groups, stride, R):
    """A group of few widths of R rows of codes, whose scales are in f32 already."""
    size = how.batch * how.width
    scale0 = self.row_scales[g]
    scale1 = scale0
    scale2 = scale0
    scale3 = scale0
    if R > 1:
        scale1 = self.row_scales[groups + g]
    if R > 2:
        scale2 = self.row_scales[2 * groups + g]
        scale3 = self.row_scales[3 * groups + g]
    for c in range(how.width):
        _group(self, how, at + c, px + c, c, stride, scale=scale0)
        if R > 1:
            _group(self, how, at + apart + c, px + c, size + c, stride, scale=scale1)
        if R > 2:
            _group(self, how, at + 2 * apart + c, px + c, 2 * size + c, stride, scale=scale2)
            _group(self, how, at + 3 * apart + c, px + c, 3 * size + c, stride, scale=scale3)


@macro
def _shifted(self, how, shifts, factor, row, groups, to, b):
    """Add offsets times the sums of x, ``width`` groups at a time."""
    whole = groups // how.width
    for n in range(whole):
        for c in range(how.width):
            shift = f32(shifts[row * groups + n * how.width + c]) * f32(factor)
            self.t[to + c] += shift * self.x_sums[b * groups + n * how.width + c]
    done = whole * how.width
    for c in range(groups - done):
        shift = f32(shifts[row * groups + done + c]) * f32(factor)
        self.t[to + c] += shift * self.x_sums[b * groups + done + c]


@macro
def _folded(self, how, made, to, row, b):
    """Put the sum of the lanes of one row of codes times one row of x in its place."""
    half = how.width
    if half == 16:
        for c in range(8):
            self.t[to + c] += self.t[to + 8 + c]
        half = 8
    if half >= 8:
        for c in range(4):
            self.t[to + c] += self.t[to + 4 + c]
        half = 4
    total = self.t[to]
    for c in range(1, half):
        total += self.t[to + c]
    self.out[b][row] = made(total)


@macro
def _rows(self, how, made, row, R, stride, groups, blocks, rest):
    """R rows of codes times all of x."""
    size = how.batch * how.width
    per_group = blocks * how.width + rest
    apart = groups * per_group
    for i in range(R * size):
        self.t[i] = f32(0.0)
    if how.blocks > 0:
        for i in range(R * groups):
            self.row_scales[i] = f32(self.scales[row * groups + i])
        for g in range(groups):
            _short_group(
                self, how, row * apart + g * per_group, apart, g * per_group, g, groups=groups, stride=stride, R=R
            )
    else:
        for g in range(groups):
            at = row * apart + g * per_group
            place = row * groups + g
            _long_group(
                self, how, at, apart, g * per_group, place, groups=groups, stride=stride, blocks=blocks, rest=rest, R=R
            )
    for r in range(R):
        for b in range(how.batch):
            to = (r * how.batch + b) * how.width
            if how.offsets:
                _shifted(self, how, self.offsets, 1, row + r, groups, to=to, b=b)
            elif how.sums:
                _shifted(self, how, self.scales, 0 - how.centre, row + r, groups, to=to, b=b)
            _folded(self, how, made, to, row + r, b)


@macro
def _prepare(self, how, stride, groups, per_group):
    """Copy x to f32 in the order of the codes, and add up its groups."""
    for b in range(how.batch):
        if how.per_byte == 2:
            for i in range(stride):
                sixteenth = f32(self.x[2 * (b * stride + i) + 1]) * f32(0.0625)
                self.x_high[b * stride + i] = sixteenth
                self.x_low[b * stride + i] = f32(self.x[2 * (b * stride + i)]) - sixteenth
        else:
            for i in range(stride):
                self.x_low[b * stride + i] = f32(self.x[b * stride + i])
        if how.sums:
            for g in range(groups):
                self.x_sums[b * groups + g] = _sum_of(self, how, (b * groups + g) * per_group, per_group)


@macro
def _sum_of(self, how, at, per_group):
    """The sum of a group of x, made by lanes."""
    width = how.width
    for c in range(width):
        self.s[c] = f32(0.0)
    for n in range(per_group // width):
        for c in range(width):
            _add_to_lane(self, how, c, at + n * width + c)
    done = per_group // width * width
    for c in range(per_group - done):
        _add_to_lane(self, how, c, at + done + c)
    total = self.s[0]
    for c in range(1, width):
        total += self.s[c]
    return total


@macro
def _add_to_lane(self, how, c, at):
    if how.per_byte == 2:
        self.s[c] += f32(self.x[2 * at]) + f32(self.x[2 * at + 1])
    else:
        self.s[c] += f32(self.x[at])


@cache
def product_codelet(
    how: QuantisedLoop, codes: ElementType, scales: ElementType, given: ElementType, made: ElementType
) -> type:
    """Some outputs of a product with quantised weights.

    Args:
        how: The kind of weights, and the blocks in which they are read.
        codes: Element type of codes.
        scales: Of scales and offsets.
        given: Of x.
        made: Of the result.
    """
    held_codes, held_scales, x_kind = codes, scales, given

    @codelet(name="HostQuantisedProduct")
    class HostQuantisedProduct(Vertex):
        codes: Input[Vector[held_codes]]
        scales: Input[Vector[held_scales]]
        if how.offsets:
            offsets: Input[Vector[held_scales]]
        x: Input[Vector[x_kind]]
        x_low: InOut[Vector[f32]]
        if how.per_byte == 2:
            x_high: InOut[Vector[f32]]
        if how.blocks > 0:
            row_scales: InOut[Vector[f32]]
        if how.sums:
            x_sums: InOut[Vector[f32]]
        s: InOut[Vector[f32]]
        t: InOut[Vector[f32]]
        out: Vector[Output[Vector[made]]]
        groups: i32
        if how.blocks == 0:
            blocks: i32
            rest: i32

        def compute(self):
            groups = i64(self.groups)
            blocks = i64(how.blocks)
            rest = i64(0)
            if how.blocks == 0:
                blocks = i64(self.blocks)
                rest = i64(self.rest)
            per_group = blocks * how.width + rest
            stride = groups * per_group
            _prepare(self, how, stride, groups, per_group)
            rows = i64(len(self.out[0]))
            whole = rows // how.rows * how.rows
            for row in range(0, whole, how.rows):
                _rows(self, how, made, row, how.rows, stride, groups=groups, blocks=blocks, rest=rest)
            if how.rows > 1:
                for row in range(whole, rows):
                    _rows(self, how, made, row, 1, stride, groups=groups, blocks=blocks, rest=rest)

    return HostQuantisedProduct
