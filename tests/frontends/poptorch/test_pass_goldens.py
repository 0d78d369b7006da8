"""Results of each pass for a handful of real small networks: the text after every pass that changes something."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from poptorch_kit import Classifier
from torch import nn

from abele.frontends import poptorch
from abele.frontends.poptorch.capture import capture
from abele.network import Group, Network, Schedule, Sgd, parse, training_pipeline
from abele.network.ir import network_text


class Loss(nn.Module):
    """A model with the mean of its squared outputs as the loss."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return poptorch.identity_loss(self.body(x).square(), "mean")


class Encoder(nn.Module):
    """Two equal attention layers with dropout."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.25, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).mean(1)


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)
    )


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...]]] = {
    "classifier": (Classifier, (torch.zeros(2, 12), torch.zeros(2, dtype=torch.int64))),
    "convolutional": (lambda: Loss(convolutional()), (torch.zeros(2, 1, 8, 8),)),
    "encoder": (lambda: Loss(Encoder()), (torch.zeros(1, 3, 8),)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_passes__real_network__make_this_of_it(name: str, snapshot: object) -> None:
    make, args = NETWORKS[name]
    net = capture(make(), args, training=True).net
    seen: list[Network] = []
    parts: list[str] = []

    def watch(number: int, step: str, after: Network) -> None:
        if not seen or after != seen[-1]:
            parts.append(f"--- {number} {step} ---\n{network_text(after, origins=False)}")
        seen.append(after)

    training_pipeline(Schedule(1, 2), [Group(Sgd(lr=0.5), net.parameters)]).run(net, watch=watch)
    assert all(parse(str(after)) == after for after in seen)
    assert "\n\n".join(parts) == snapshot


def test_dumpPasses__of_a_model__writes_what_reads_back(tmp_path: Path) -> None:
    opts = poptorch.Options().modelName("two layers")
    opts.Abele.dumpPasses(tmp_path)
    model = Classifier()
    args = (torch.zeros(2, 12), torch.zeros(2, dtype=torch.int64))
    poptorch.trainingModel(model, opts, optimizer=torch.optim.SGD(model.parameters(), lr=0.1)).compile(*args)
    poptorch.inferenceModel(model, opts).compile(args[0])
    folders = sorted(p.name for p in tmp_path.iterdir())
    assert folders == ["two_layers-inference", "two_layers-training"]
    texts = {p.name: p.read_text() for p in sorted((tmp_path / "two_layers-training").iterdir())}
    assert "00-captured.net" in texts
    assert "gradient %first.weight" in texts["10-differentiate.net"]
    assert all(str(parse(text)) == text.rstrip("\n") for text in texts.values())


def test_recompute__training__learns_the_same() -> None:
    def trained(recompute: bool) -> torch.Tensor:
        torch.manual_seed(0)
        body = nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 4), nn.Softmax(1))
        model, opts = Loss(body), poptorch.Options()
        opts.Abele.recompute(recompute)
        step = poptorch.trainingModel(model, opts, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
        step(torch.randn(2, 12, generator=torch.Generator().manual_seed(1)))
        step.copyWeightsToHost()
        return model.body[0].weight.detach().clone()

    torch.testing.assert_close(trained(True), trained(False), rtol=1e-5, atol=1e-6)


def test_training__pooled_field_into_a_linear_layer__is_planned() -> None:
    model = Loss(convolutional())
    step = poptorch.trainingModel(model, poptorch.Options(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    assert torch.isfinite(step(torch.randn(2, 1, 8, 8)))
