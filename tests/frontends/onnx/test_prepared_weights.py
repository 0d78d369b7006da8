"""Weights in other forms: made on the host, once, and anew when the weights change."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from abele import onnx as abele_onnx
from abele.network import Sgd

torch = pytest.importorskip("torch")


def model_of(nodes: list[onnx.NodeProto], shape: tuple[int, ...], weights: dict[str, Any]) -> onnx.ModelProto:
    """A model from ``x`` to ``y``, with initialisers."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def referred(proto: onnx.ModelProto, x: Any) -> Any:
    """The result by onnx's own evaluator."""
    return ReferenceEvaluator(proto).run(None, {"x": x})[0]


@pytest.fixture
def turned_twice() -> tuple[onnx.ModelProto, Any]:
    """A model whose weight is read as it is, and transposed and scaled."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(5, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Identity", ["w"], ["same"]),
        helper.make_node("Transpose", ["same"], ["turned"]),
        helper.make_node("Mul", ["turned", "scale"], ["scaled"]),
        helper.make_node("MatMul", ["x", "scaled"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "same"], ["y"]),
    ]
    proto = model_of(nodes, (3, 4), {"w": weight, "scale": np.asarray([2.0], np.float32)})
    return proto, rng.normal(size=(3, 4)).astype(np.float32)


def test_prepared_weights__a_weight_in_another_form__is_no_node_of_the_network(turned_twice: Any) -> None:
    proto, x = turned_twice
    model = abele_onnx.load(proto)
    assert set(model.weights) == {"w", "scaled"}
    assert {op.kind for op in model.network.ops} <= {"linear", "permute", "matmul", "transpose"}
    np.testing.assert_allclose(model.infer(x)["y"], referred(proto, x), rtol=1e-5, atol=1e-5)


def test_prepared_weights__trained__follow_the_weights_that_they_are_made_of(turned_twice: Any, tmp_path: Any) -> None:
    proto, x = turned_twice
    model = abele_onnx.load(proto)
    before = model.infer(x)["y"]
    train = model.train(abele_onnx.Loss("mse"), Sgd(lr=0.01))
    for _ in range(2):
        train(x, np.zeros_like(before))
    model.save(tmp_path / "trained.onnx")
    after = referred(onnx.load(str(tmp_path / "trained.onnx")), x)
    assert np.abs(after - before).max() > 0.1
    np.testing.assert_allclose(model.infer(x)["y"], after, rtol=1e-5, atol=1e-5)


def test_prepared_weights__written_by_the_user__follow_them(turned_twice: Any) -> None:
    proto, x = turned_twice
    model = abele_onnx.load(proto)
    once = model.infer(x)["y"]
    model.weights["w"] = 3 * model.weights["w"]
    np.testing.assert_allclose(model.infer(x)["y"], 9 * once, rtol=1e-5, atol=1e-5)


def test_prepared_weights__a_weight_under_two_names__is_trained_as_one(turned_twice: Any) -> None:
    proto, x = turned_twice
    train = abele_onnx.load(proto).train(abele_onnx.Loss("mse"), Sgd(lr=0.01))
    train(x, np.zeros((3, 4), np.float32))
    w = torch.tensor(numpy_helper.to_array(proto.graph.initializer[0]), requires_grad=True)
    loss = (torch.tensor(x) @ (w.T * 2.0) @ w).square().mean()
    loss.backward()
    np.testing.assert_allclose(train.model.weights["w"], (w - 0.01 * w.grad).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_prepared_weights__gates_in_another_order__cost_what_pytorchs_layer_costs(kind: str, tmp_path: Any) -> None:
    from abele import poptorch

    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(8, 12).eval()
    x = torch.randn(5, 2, 8)
    # ONNX has the gates in another order: input, output, forget, cell; update, reset, new.
    order = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}[kind]

    def gates(a: Any) -> Any:
        parts = np.split(a.detach().numpy(), len(order))
        return np.concatenate([parts[n] for n in order])[None]

    weights = {
        "w": gates(layer.weight_ih_l0),
        "r": gates(layer.weight_hh_l0),
        "b": np.concatenate([gates(layer.bias_ih_l0), gates(layer.bias_hh_l0)], 1),
    }
    more = {"linear_before_reset": 1} if kind == "GRU" else {}
    nodes = [
        helper.make_node(kind, ["x", "w", "r", "b"], ["all"], hidden_size=12, **more),
        helper.make_node("Squeeze", ["all", "axis"], ["y"]),
    ]
    model = abele_onnx.load(model_of(nodes, (5, 2, 8), {**weights, "axis": np.asarray([1])}))
    same = poptorch.inferenceModel(torch.nn.Sequential(layer, _First()).eval())
    np.testing.assert_allclose(model.infer(x.numpy())["y"], same(x).numpy(), rtol=1e-5, atol=1e-6)
    assert model.report.total_cycles == pytest.approx(same.report().total_cycles, rel=0.03)


class _First(torch.nn.Module):  # type: ignore[misc, name-defined]
    """The outputs of a recurrent layer, without its states."""

    def forward(self, made: Any) -> Any:
        """The first of a tuple."""
        return made[0]


def test_folding__operands_that_broadcast_to_much__are_left_to_the_device() -> None:
    wide, high = np.ones((1, 2**16), np.float32), np.ones((2**16, 1), np.float32)
    from abele.frontends.onnx.folding import fold

    for kind in ("Add", "Mul", "Pow", "Less"):
        assert fold(helper.make_node(kind, ["a", "b"], ["c"]), 17, [high, wide], {"": 17}) is None
    assert fold(helper.make_node("MatMul", ["a", "b"], ["c"]), 17, [high, wide], {"": 17}) is None
    pads = np.full(8, 2**12)
    assert fold(helper.make_node("Pad", ["a", "b"], ["c"]), 17, [np.ones((1, 1, 1, 1)), pads], {"": 17}) is None
