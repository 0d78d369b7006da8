"""Images made ready for networks."""

from __future__ import annotations

from abele.numerics import ElementType, f16, f32, u8
from abele.poplibs.public_vertices.family import Family, Instance
from abele.poplibs.public_vertices.parameters import type_of
from abele.poplibs.public_vertices.text import loop, one, vector, wide


def families() -> list[Family]:
    """Every vertex of this module."""
    return [
        Family(
            "NormaliseImage",
            (type_of(u8, f16, f32, name="input"), type_of(f16, f32, name="output")),
            _image,
            "likely",
            "pixels of 3 channels to 4: (in · inScale − offsets[c]) · scales[c], then 0",
        ),
    ]


def _image(dtype: ElementType, out: ElementType) -> Instance:
    fields = (
        one("inScale", f32),
        vector("in_", dtype),
        vector("scales", out, "Input", "ONE_PTR"),
        vector("offsets", out, "Input", "ONE_PTR"),
        vector("out", out, "Output", "ONE_PTR"),
    )
    value = f"(f32(self.in_[3 * i + c]) * self.inScale - {wide('self.offsets[c]', out, f32)})"
    value = f"{value} * {wide('self.scales[c]', out, f32)}"
    body = loop(
        "len(self.in_) // 3",
        [
            *loop("3", [f"self.out[4 * i + c] = {wide(value, f32, out)}"], "c"),
            f"self.out[4 * i + 3] = {out.name}(0.0)",
        ],
    )
    return Instance("Vertex", fields, tuple(body))
