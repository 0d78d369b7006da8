"""Boxes picked of those that overlap: onnx's own cases, and several samples and classes by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from abele import onnx as abele_onnx
from frontends.onnx import node_cases


@pytest.mark.parametrize("name", [n for n in node_cases.cases() if "nonmaxsuppression" in n])
def test_non_max_suppression__onnx_case__picked_rows_come_first_and_others_are_minus_one(name: str) -> None:
    case = node_cases.cases()[name]
    names = [v.name for v in case.model.graph.input]
    given = dict(zip(names, node_cases.arrays(case.data_sets[0][0]), strict=False))
    (wanted,) = node_cases.arrays(case.data_sets[0][1])
    # Known numbers are computed while the model is read: the boxes and scores come in a run.
    held = {n: a for n, a in given.items() if n not in ("boxes", "scores")}
    with pytest.warns(UserWarning, match="rows of -1 behind them"):
        model = abele_onnx.load(case.model, values=held)
    fed = {n: a for n, a in given.items() if n not in held}
    (made,) = node_cases.interpreted(model, fed).values()
    np.testing.assert_array_equal(made[: len(wanted)], wanted)
    assert (made[len(wanted) :] == -1).all()


def picked(boxes: Any, scores: Any, most: int, overlap: float, least: float) -> list[list[int]]:
    """Boxes by the plain rule, one after the other."""
    rows = []
    for sample, of_sample in enumerate(scores):
        for number, of_class in enumerate(of_sample):
            kept: list[int] = []
            for place in np.argsort(-of_class, kind="stable"):
                if of_class[place] <= least or len(kept) == most:
                    break
                if all(shared(boxes[sample, place], boxes[sample, other]) <= overlap for other in kept):
                    kept.append(int(place))
            rows += [[sample, number, place] for place in kept]
    return rows


def shared(a: Any, b: Any) -> float:
    """Area of both over the area of either."""
    sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    both = float(sides.prod())
    return both / float((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - both)


def test_non_max_suppression__compiled__of_several_samples_and_classes_is_numpys() -> None:
    draw = np.random.default_rng(0)
    low = draw.uniform(0, 4, (2, 9, 2))
    boxes = np.concatenate([low, low + draw.uniform(0.5, 3, (2, 9, 2))], -1).astype(np.float32)
    scores = draw.uniform(size=(2, 3, 9)).astype(np.float32)
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["picked"])
    graph = helper.make_graph(
        [node],
        "boxes",
        [helper.make_tensor_value_info(n, 1, a.shape) for n, a in (("boxes", boxes), ("scores", scores))],
        [helper.make_tensor_value_info("picked", 7, [None, 3])],
        [
            helper.make_tensor("most", 7, [1], [4]),
            helper.make_tensor("overlap", 1, [1], [0.3]),
            helper.make_tensor("least", 1, [1], [0.2]),
        ],
    )
    with pytest.warns(UserWarning, match=r"gives \[24, 3\]"):
        model = abele_onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8))
    made = model.infer(boxes, scores)["picked"]
    wanted = np.array(picked(boxes, scores, 4, 0.3, 0.2))
    np.testing.assert_array_equal(made[: len(wanted)], wanted)
    assert (made[len(wanted) :] == -1).all()
    assert made.dtype == np.int64
