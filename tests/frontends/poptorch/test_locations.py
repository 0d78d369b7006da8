"""``opts.TensorLocations``: training with tensors elsewhere, against PyTorch over the whole batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from abele.errors import InvalidOptionError, MachineError
from abele.frontends import poptorch
from abele.network import Locations, TensorLocation

Settings = poptorch.TensorLocationSettings
REPLICAS, ACCUMULATION, SAMPLES = 2, 2, 4


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 7)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.last(torch.tanh(self.first(x)))
        return y, poptorch.identity_loss(((y - target) ** 2).mean(), reduction="none")


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    count = REPLICAS * ACCUMULATION * SAMPLES
    return torch.randn(count, 8, generator=generator), torch.randn(count, 7, generator=generator)


def options(**locations: Settings) -> poptorch.Options:
    opts = poptorch.Options().replicationFactor(REPLICAS)
    opts.Training.gradientAccumulation(ACCUMULATION)
    for kind, location in locations.items():
        getattr(opts.TensorLocations, f"set{kind}Location")(location)
    return opts


def away() -> Settings:
    return Settings().useOnChipStorage(False).useReplicatedTensorSharding(False)


EVERYTHING = {
    "Optimizer": Settings()
    .useOnChipStorage(False)
    .useReplicatedTensorSharding(True)
    .minElementsForReplicatedTensorSharding(2),
    "Weight": away(),
    "Accumulator": away(),
}


@pytest.mark.parametrize(
    ("make", "reference"),
    [
        (lambda p: poptorch.optim.AdamW(p, lr=0.01), lambda p: torch.optim.AdamW(p, lr=0.01)),
        (lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
        pytest.param(
            lambda p: poptorch.optim.RMSprop(p, lr=0.01),
            lambda p: torch.optim.RMSprop(p, lr=0.01),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["adamw", "sgd", "rmsprop"],
)
def test_training__with_tensors_elsewhere__is_what_pytorch_does_with_the_whole_batch(
    make: Callable[[Any], Any], reference: Callable[[Any], Any]
) -> None:
    torch.manual_seed(0)
    model, alone = Model(), Model()
    alone.load_state_dict(model.state_dict())
    training = poptorch.trainingModel(model, options(**EVERYTHING), optimizer=make(model.parameters()))
    optimiser = reference(alone.parameters())
    for _ in range(3):
        training(*data())
        optimiser.zero_grad()
        alone(*data())[1].backward()
        optimiser.step()
    training.copyWeightsToHost()
    for name, expected in alone.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], expected, rtol=1e-4, atol=1e-5, msg=name)


def test_checkpoint__with_state_elsewhere__goes_on_with_state_on_the_chip() -> None:
    torch.manual_seed(0)
    model, other = Model(), Model()
    first = poptorch.optim.Adam(model.parameters(), lr=0.01)
    training = poptorch.trainingModel(model, options(**EVERYTHING), optimizer=first)
    training(*data())
    weights, state = training.state_dict(), first.state_dict()
    training(*data())
    other.load_state_dict(weights)
    second = poptorch.optim.Adam(other.parameters(), lr=0.01)
    second.load_state_dict(state)
    again = poptorch.trainingModel(other, options(), optimizer=second)
    again(*data())
    for name, expected in training.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], expected, rtol=1e-6, atol=1e-7, msg=name)


@pytest.mark.usefixtures("whole_machine")
def test_training__with_io_tiles__is_the_same_in_fewer_cycles() -> None:
    found = []
    for tiles in (0, 32):
        torch.manual_seed(0)
        model, opts = Model(), poptorch.Options()
        opts.Training.gradientAccumulation(8)
        if tiles:
            opts.TensorLocations.numIOTiles(tiles)
        training = poptorch.trainingModel(model, opts, poptorch.optim.SGD(model.parameters(), lr=0.1))
        x = torch.randn(8 * 64, 8, generator=torch.Generator().manual_seed(1))
        losses = training(x, x[:, :7])[1]
        found.append((losses, training.report().step_cycles))
    torch.testing.assert_close(found[1][0], found[0][0])
    assert found[1][1].hidden > 0.5 * min(found[1][1].host, found[1][1].compute)


def test_settings__as_poptorch_takes_them__are_locations() -> None:
    chosen = options(Optimizer=Settings().useOnChipStorage(False).minElementsForOffChip(4), Weight=Settings())
    off, on = TensorLocation(on_chip=False, min_elements_off_chip=4), TensorLocation()
    assert chosen.TensorLocations.locations(training=True) == Locations(off, on, on, on)
    assert chosen.TensorLocations.locations(training=False) == Locations()
    left_open = options(Optimizer=Settings().useOnChipStorage(None).useReplicatedTensorSharding())
    sharded = TensorLocation(sharded=True, min_elements_sharded=8192)
    assert left_open.TensorLocations.locations(training=True).optimiser == sharded


def test_training__with_shared_weights__is_refused() -> None:
    model = Model()
    opts = options(Weight=Settings().useReplicatedTensorSharding())
    training = poptorch.trainingModel(model, opts, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(InvalidOptionError, match="replicas cannot share weights"):
        training(*data())


def test_training__on_a_system_without_streaming_memory__is_refused() -> None:
    model = Model()
    opts = poptorch.Options()
    opts.Abele.system("c600")
    opts.TensorLocations.setOptimizerLocation(away())
    training = poptorch.trainingModel(model, opts, optimizer=poptorch.optim.Adam(model.parameters()))
    with pytest.raises(MachineError, match="c600 has no streaming memory"):
        training(*data())
