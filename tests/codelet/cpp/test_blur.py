"""A blur in the shapes that stencil codes have: what it computes, and issue slots beside those of silicon.

Source: machine reference §2.6: cycles of compute of a step on one GC2, whose fullest tile has 36 × 58 pixels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abele.codelet import CodeletDef, compile_codelet
from abele.codelet.tables import build_tables
from codelet.cpp.conftest import load, run, zeros

PIXELS = 36 * 58
MEASURED = {"half,half4,1": 63_531, "float,float2,2": 100_257, "float,float,4": 210_249}
SHAPES = ("BlurBlock", "BlurRows", "BlurHalo")
KINDS = [(shape, kind) for shape in SHAPES for kind in MEASURED]


def edges(image: np.ndarray) -> dict[str, np.ndarray]:
    """The block of an image without its border, and the border in eight pieces."""
    whole = {"in": image[1:-1, 1:-1], "n": image[0, 1:-1], "s": image[-1, 1:-1], "w": image[1:-1, 0]}
    whole |= {"e": image[1:-1, -1], "nw": image[0, 0], "ne": image[0, -1], "sw": image[-1, 0], "se": image[-1, -1]}
    return {name: piece.ravel() for name, piece in whole.items()}


def fields(shape: str, image: np.ndarray) -> dict[str, Any]:
    """Fields of a vertex that blurs an image without its border."""
    height, width = image.shape[0] - 2, image.shape[1] - 2
    if shape == "BlurRows":
        rows = [row.ravel() for row in image]
        return {"in": rows, "out": [zeros(width * 4, image.dtype) for _ in range(height)]}
    size = {"width": width, "height": height, "out": zeros(height * width * 4, image.dtype)}
    return {**size, "in": image.ravel()} if shape == "BlurBlock" else {**size, **edges(image)}


def codelet_of(shape: str, kind: str) -> CodeletDef:
    scalar, vector, vectors = kind.split(",")
    found = load("blur.cpp")
    return found[f"{shape}<{scalar},{vector},{vectors}>"]


def dtype_of(kind: str) -> str:
    return "f2" if "half" in kind else "f4"


def slots(shape: str, kind: str, height: int, width: int) -> int:
    definition = codelet_of(shape, kind)
    made = fields(shape, zeros((height + 2) * (width + 2) * 4, dtype_of(kind)).reshape(height + 2, width + 2, 4))
    return int(build_tables(definition, [made]).count(compile_codelet(definition).slots or 0)[0])


@pytest.mark.parametrize(("shape", "kind"), KINDS)
def test_blur__any_shape__is_that_of_numpy(shape: str, kind: str) -> None:
    image = np.random.default_rng(3).random((9, 8, 4)).astype(dtype_of(kind))
    got = run(codelet_of(shape, kind), **fields(shape, image))["out"]
    kernel = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16
    wanted = sum(kernel[y, x] * image[y : y + 7, x : x + 6].astype("f8") for y in range(3) for x in range(3))
    flat = np.concatenate(got) if isinstance(got, list) else got
    np.testing.assert_allclose(flat.reshape(7, 6, 4), wanted, rtol=5e-3 if "half" in kind else 1e-6)


@pytest.mark.parametrize(("shape", "kind"), KINDS)
def test_blur__a_pixel__takes_the_slots_of_silicon_within_10_percent(shape: str, kind: str) -> None:
    # Tile cycles of a MultiVertex, whose six workers share the rows, are slots of one worker that has them all.
    pixel = (slots(shape, kind, 12, 158) - slots(shape, kind, 12, 58)) / 1200
    assert pixel == pytest.approx(MEASURED[kind] / PIXELS, rel=0.1)
