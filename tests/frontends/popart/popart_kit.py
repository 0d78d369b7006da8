"""Tools of the tests of PopART's names: sessions in a line, and a small network beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from abele import popart

All = popart.AnchorReturnType("All")
Final = popart.AnchorReturnType("Final")


def device(ipus: int = 1) -> popart.DeviceInfo:
    """A device of so many IPUs."""
    return popart.DeviceManager().createIpuModelDevice({"numIPUs": ipus})


def replicated(count: int, accumulation: int = 1) -> popart.SessionOptions:
    """Options of so many replicas and micro-batches."""
    options = popart.SessionOptions()
    if count > 1:
        options.enableReplicatedGraphs, options.replicatedGraphCount = True, count
    if accumulation > 1:
        options.enableGradientAccumulation, options.accumulationFactor = True, accumulation
    return options


def training(
    builder: popart.Builder,
    anchors: Any,
    loss: str,
    optimizer: Any,
    *,
    options: Any = None,
    batches: int = 1,
    ipus: int = 1,
) -> tuple[popart.TrainingSession, dict[str, Any]]:
    """A session that is ready to run, and arrays for its anchors."""
    flow = popart.DataFlow(batches, anchors)
    session = popart.TrainingSession(
        builder.getModelProto(), flow, loss, optimizer, device(ipus), userOptions=options or popart.SessionOptions()
    )
    session.prepareDevice()
    session.weightsFromHost()
    return session, session.initAnchorArrays()


def inference(
    builder: popart.Builder, anchors: Any, *, options: Any = None, batches: int = 1, ipus: int = 1
) -> tuple[popart.InferenceSession, dict[str, Any]]:
    """A session that is ready to run, and arrays for its anchors."""
    flow = popart.DataFlow(batches, anchors)
    session = popart.InferenceSession(
        builder.getModelProto(), flow, device(ipus), userOptions=options or popart.SessionOptions()
    )
    session.prepareDevice()
    session.weightsFromHost()
    return session, session.initAnchorArrays()


def infer(make: Callable[..., Any], *arrays: Any, opsets: Mapping[str, int] | None = None) -> Any:
    """Results of operators on arrays: ``make(builder, *names)`` gives a name, or several."""
    builder = popart.Builder(opsets=opsets)
    names = [builder.addInputTensor(popart.TensorInfo(np.asarray(array))) for array in arrays]
    made = make(builder, *names)
    several = [made] if isinstance(made, str) else list(made)
    session, anchors = inference(builder, several)
    session.run(popart.PyStepIO(dict(zip(names, map(np.ascontiguousarray, arrays), strict=True)), anchors))
    found = [anchors[name] for name in several]
    return found[0] if isinstance(made, str) else found


def read_weights(session: Any, shapes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Weights by name, as they are on the device."""
    session.weightsToHost()
    held = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    session.readWeights(popart.PyWeightsIO(held))
    return held


class Perceptron:
    """Two dense layers and a loss over samples [4, 8], in a builder and in PyTorch.

    Args:
        staged: True if the layers are the stages of a pipeline over two IPUs.
    """

    def __init__(self, *, staged: bool = False) -> None:
        random = np.random.default_rng(3)
        self.arrays = [
            (random.standard_normal((8, 16)) / 3).astype(np.float32),
            (random.standard_normal((16, 4)) / 4).astype(np.float32),
        ]
        self.builder = builder = popart.Builder()
        self.x = builder.addInputTensor(popart.TensorInfo("FLOAT", [4, 8]))
        self.labels = builder.addInputTensor(popart.TensorInfo("INT32", [4]))
        self.weights = [builder.addInitializedInputTensor(array) for array in self.arrays]
        self.hidden = builder.aiOnnx.relu([builder.aiOnnx.matmul([self.x, self.weights[0]])])
        scores = builder.aiOnnx.matmul([self.hidden, self.weights[1]])
        self.shares = builder.aiOnnx.softmax([scores])
        self.loss = builder.aiGraphcore.nllloss([self.shares, self.labels], popart.ReductionType.Sum)
        if staged:
            nodes = builder.getValueTensorIds()
            for number, names in enumerate((nodes[:2], nodes[2:])):
                builder.virtualGraph(names, number)
                builder.pipelineStage(names, number)

    def samples(self, *outer: int) -> tuple[Any, Any]:
        """Samples and labels of some micro-batches."""
        random = np.random.default_rng(4)
        x = random.standard_normal((*outer, 4, 8)).astype(np.float32)
        return x, random.integers(0, 4, (*outer, 4)).astype(np.int32)

    def torch_losses(self, weights: Sequence[torch.Tensor], x: Any, labels: Any) -> torch.Tensor:
        """PyTorch's loss of a micro-batch."""
        scores = torch.relu(torch.tensor(x) @ weights[0]) @ weights[1]
        return torch.nn.functional.cross_entropy(scores, torch.tensor(labels).long(), reduction="sum")

    def torch_steps(self, x: Any, labels: Any, rate: float) -> tuple[list[float], list[Any]]:
        """Losses of micro-batches, and weights after updates of all those of an outermost entry."""
        weights = [torch.tensor(array, requires_grad=True) for array in self.arrays]
        losses: list[float] = []
        for several, their in zip(x, labels, strict=True):
            rows = zip(several.reshape(-1, 4, 8), their.reshape(-1, 4), strict=True)
            each = [self.torch_losses(weights, *row) for row in rows]
            losses += [loss.item() for loss in each]
            gradients = torch.autograd.grad(torch.stack(each).sum(), weights)
            with torch.no_grad():
                for weight, gradient in zip(weights, gradients, strict=True):
                    weight -= rate * gradient
        return losses, [weight.detach().numpy() for weight in weights]
