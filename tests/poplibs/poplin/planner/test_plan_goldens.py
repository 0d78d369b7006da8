"""Plans for a set of products and convolutions, as text.

A change of a plan is a change of cycles: where one is meant, ``pytest --snapshot-update`` writes the texts anew.
"""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from abele.graph import Graph
from abele.machine import systems
from abele.poplibs import poplin
from abele.poplibs.poplin import ConvParams

PRODUCTS = {
    "square f16": ((512, 512), (512, 512), "f16"),
    "square f32": ((512, 512), (512, 512), "f32"),
    "long sum": ((16, 20000), (20000, 16), "f16"),
    "one row": ((1, 1024), (1024, 4096), "f16"),
    "tall": ((50000, 16), (16, 16), "f32"),
    "grouped": ((12, 128, 64), (12, 64, 128), "f16"),
    "tiny": ((3, 5), (5, 2), "f32"),
}

CONVOLUTIONS = {
    "3x3": (ConvParams(4, 64, 64, (28, 28), (3, 3), padding_lower=(1, 1), padding_upper=(1, 1)), "f16"),
    "1x1": (ConvParams(4, 256, 64, (14, 14), (1, 1)), "f16"),
    "few channels": (ConvParams(1, 3, 32, (64, 64), (7, 7), stride=(2, 2)), "f16"),
    "depthwise": (ConvParams(2, 64, 64, (16, 16), (3, 3), groups=64), "f16"),
    "dilated f32": (ConvParams(1, 16, 16, (20, 20), (3, 3), dilation=(2, 2)), "f32"),
    "three field dimensions": (ConvParams(1, 8, 8, (8, 8, 8), (3, 3, 3)), "f16"),
}


@pytest.fixture
def graph() -> Graph:
    return Graph(systems.get("bow-2000:1"))


@pytest.mark.parametrize("name", PRODUCTS)
def test_matmul__of_each_form__has_the_plan_of_the_golden(name: str, graph: Graph, snapshot: SnapshotAssertion) -> None:
    left, right, dtype = PRODUCTS[name]
    assert str(poplin.explain_matmul(graph, left, right, dtype)) == snapshot


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution__of_each_form__has_the_plan_of_the_golden(
    name: str, graph: Graph, snapshot: SnapshotAssertion
) -> None:
    params, dtype = CONVOLUTIONS[name]
    assert str(poplin.explain_convolution(graph, params, dtype)) == snapshot
