"""Training of models that PyTorch's exporter would write: losses and weights are PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from abele import onnx as abele_onnx
from abele.network import Sgd
from abele.onnx import Loss, ModelError

torch = pytest.importorskip("torch", reason="needs PyTorch")

draw = np.random.default_rng(3)


def with_weights(text: str, **arrays: np.ndarray) -> abele_onnx.Model:
    proto = parser.parse_model(text)
    proto.graph.initializer.extend(numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items())
    return abele_onnx.load(proto)


def test_training__of_an_mlp__is_pytorchs() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    w = {n.replace(".", "_"): p.detach().numpy().copy() for n, p in net.named_parameters()}
    model = with_weights(
        """<ir_version: 8, opset_import: ["" : 17]> mlp (float[5, 6] x) => (float[5, 3] y)
        { a = Gemm <transB = 1> (x, "0_weight", "0_bias") b = Tanh (a) y = Gemm <transB = 1> (b, "2_weight", "2_bias") }
        """.replace('"0_', "p0_")
        .replace('"2_', "p2_")
        .replace('weight"', "weight")
        .replace('bias"', "bias"),
        **{f"p{n}": a for n, a in w.items()},
    )
    step = model.train(Loss("cross_entropy"), Sgd(lr=0.1))
    assert [p.name for p in step.inputs] == ["x", "target"]
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(4):
        x, labels = draw.normal(size=(5, 6)).astype(np.float32), draw.integers(0, 3, 5)
        made = step(x, labels)
        scores = net(torch.from_numpy(x))
        loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        assert made["loss"] == pytest.approx(loss.item(), rel=1e-5)
        np.testing.assert_allclose(made["y"], scores.detach(), rtol=1e-4, atol=1e-6)
    for name, parameter in net.named_parameters():
        np.testing.assert_allclose(
            model.weights[f"p{name.replace('.', '_')}"], parameter.detach(), rtol=1e-4, atol=1e-6
        )
    assert step.report.total_cycles > 0


def test_training__of_a_network_with_a_batch_norm__is_pytorchs() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    w = {n: p.detach().numpy().copy() for n, p in net.named_parameters()}
    model = with_weights(
        """<ir_version: 8, opset_import: ["" : 17]> cnn (float[3, 2, 5, 5] x) => (float[3, 4] y)
        { c = Conv <pads = [1, 1, 1, 1]> (x, w, b)
          n, m2, v2 = BatchNormalization <training_mode = 1, momentum = 0.9> (c, scale, shift, mean, spread)
          r = Relu (n) p = GlobalAveragePool (r) y = Flatten (p) }""",
        w=w["0.weight"],
        b=w["0.bias"],
        scale=w["1.weight"],
        shift=w["1.bias"],
        mean=np.zeros(4),
        spread=np.ones(4),
    )
    step = model.train(Loss("mse"), Sgd(lr=0.05))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(3):
        x, target = draw.normal(size=(3, 2, 5, 5)).astype(np.float32), draw.normal(size=(3, 4)).astype(np.float32)
        made = step(x=x, target=target)
        loss = torch.nn.functional.mse_loss(net(torch.from_numpy(x)).mean((2, 3)), torch.from_numpy(target))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        assert made["loss"] == pytest.approx(loss.item(), rel=1e-4)
    np.testing.assert_allclose(model.weights["w"], net[0].weight.detach(), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(model.weights["scale"], net[1].weight.detach(), rtol=1e-3)


LINEAR = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[2, 3] y, float l)
    <float[3] w = {1, 2, 3}, float[3] b = {0, 0, 0}> { a = Mul (x, w) y = Add (a, b)
      l = ReduceMean <keepdims = 0> (y) }"""


def test_training__by_a_tensor_of_the_model__changes_the_parameters_that_are_named() -> None:
    model = abele_onnx.load(parser.parse_model(LINEAR))
    x = draw.normal(size=(2, 3)).astype(np.float32)
    made = model.train("l", Sgd(lr=1.0), parameters=["w"])(x)
    assert made["loss"] == pytest.approx((x * [1, 2, 3]).mean(), rel=1e-5)
    np.testing.assert_allclose(model.weights["w"], np.array([1, 2, 3]) - x.sum(0) / 6, rtol=1e-5)
    assert not np.asarray(model.weights["b"]).any()


@pytest.mark.parametrize(
    ("loss", "options", "words"),
    [
        ("y", {}, "the loss 'y' has the shape \\[2, 3\\]"),
        ("q", {}, "'q'"),
        (Loss("hinge"), {}, "there is no loss 'hinge'"),
        (Loss("mse", output="q"), {}, "the loss is of 'q'"),
        (Loss("mse", target="x"), {}, "the target of the loss is called 'x'"),
        ("l", {"parameters": ["q"]}, "names 'q', which is no initialiser"),
    ],
    ids=str,
)
def test_training__of_what_cannot_be_trained__says_why(loss: object, options: dict, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        abele_onnx.load(parser.parse_model(LINEAR)).train(loss, **options)


def test_target__of_labels__has_no_class_axis() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 5])
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        [x],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4, 5])],
        [numpy_helper.from_array(np.ones(5, np.float32), "w")],
    )
    model = abele_onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)]))
    assert model.train(Loss("cross_entropy")).inputs[1].shape == (2, 5)
