"""Products with quantised weights on tiles and on the host, beside NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, Sequence
from abele.machine import systems
from abele.numerics import ElementType, as_element_type, f16, f32, i32
from abele.poplibs.poplin.quantised import QuantisedTensor, create_part, quantised_matmul
from abele.poplibs.poplin.quantised.costs import CodeSizes, best_split, unpack_slots
from abele.runtime import Engine
from abele.weights import QuantisedMatrix, quantise

RNG = np.random.default_rng(0)
TOLERANCE = {f32: 3e-6, f16: 2e-3}


def product(held: QuantisedMatrix, x: Any, dtype: ElementType, mode: str) -> tuple[Any, Engine]:
    graph, prog = Graph("bow"), Sequence()
    taken = graph.variable(dtype, x.shape, name="x", map="linear")
    arrays = [held.codes, held.scales] + ([] if held.offsets is None else [held.offsets])
    parts = [
        create_part(
            graph,
            as_element_type(array.dtype),
            array.shape,
            x=(x.shape[0], dtype),
            kind=held.kind,
            codes=held.codes.shape,
            groups=held.scales.shape[1],
            offsets=held.offsets is not None,
            name="w",
        )
        for array in arrays
    ]
    out = quantised_matmul(graph, taken, QuantisedTensor(held.kind, *parts), prog)
    engine = Engine(graph, prog, mode=mode, keep=[taken, out, *parts])
    engine[taken] = x.astype(dtype.np)
    for tensor, array in zip(parts, arrays, strict=True):
        engine[tensor] = array
    engine.run()
    return np.asarray(engine[out], np.float64), engine


def centred(shape: tuple[int, int]) -> QuantisedMatrix:
    codes = RNG.integers(0, 256, (shape[0], shape[1] // 2)).astype(np.uint8)
    return QuantisedMatrix("int4", codes, RNG.random((shape[0], shape[1] // 32)).astype(np.float16), None, 32)


@pytest.mark.parametrize("mode", ["tiles", "native"])
@pytest.mark.parametrize(
    ("scheme", "rows", "shape", "dtype"),
    [
        ("int8", 1, (37, 51), f32),
        ("int8", 5, (3, 33), f16),
        ("int4-64", 1, (50, 576), f32),
        pytest.param("int4-32", 8, (1, 64), f16, marks=pytest.mark.slow),
        pytest.param("int4-128", 9, (20, 128), f32, marks=pytest.mark.slow),
        pytest.param("f143", 2, (17, 40), f16, marks=pytest.mark.slow),
        pytest.param("centred", 3, (12, 64), f32, marks=pytest.mark.slow),
    ],
)
def test_product__each_kind__is_that_of_its_numbers(
    scheme: str, rows: int, shape: tuple[int, int], dtype: ElementType, mode: str
) -> None:
    held = centred(shape) if scheme == "centred" else quantise(RNG.standard_normal(shape), scheme)
    x = RNG.standard_normal((rows, shape[1])).astype(dtype.np)
    made, _ = product(held, x, dtype, mode)
    wanted = x.astype(np.float64) @ held.dequantised().T
    np.testing.assert_allclose(made, wanted, atol=TOLERANCE[dtype] * np.abs(wanted).max(), rtol=0)


def test_split__of_a_layer_of_llama__is_of_even_work() -> None:
    sizes = CodeSizes("int4", 4096, 64, 64, 32, offsets=True)
    split = best_split(sizes, f16, 1, systems.get("bow-2000:1"))
    assert split.parts[0] * split.parts[1] <= 1472
    even = 4096 * 64 / 1472 * int(unpack_slots("int4", f16, 64, systems.get("bow-2000:1")))
    assert even < split.cycles < 2.5 * even


def test_unpacking_f143__on_a_chip_that_converts__takes_few_slots() -> None:
    bow, c600 = (unpack_slots("f143", f16, 64, systems.get(name)) for name in ("bow-2000:1", "c600"))
    assert 8 * c600 < bow


def test_product__what_does_not_fit__is_refused() -> None:
    graph, prog = Graph("bow"), Sequence()
    codes, scales = graph.variable("i8", (4, 8), map="linear"), graph.variable("f32", (4, 1), map="linear")
    weights = QuantisedTensor("int8", codes, scales)
    with pytest.raises(TensorError, match="8 columns"):
        quantised_matmul(graph, graph.variable(f32, (1, 9), map="linear"), weights, prog)
    with pytest.raises(TypeMismatchError, match="f16 or f32"):
        quantised_matmul(graph, graph.variable(i32, (1, 8), map="linear"), weights, prog)
    with pytest.raises(TensorError, match="scales"):
        QuantisedTensor("int8", codes, graph.variable("f32", (4, 3), map="linear"))
