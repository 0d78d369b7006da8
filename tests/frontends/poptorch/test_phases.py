"""Execution in phases: where tensors are by default and by options, and that models learn what PyTorch's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from placement_kit import Bert, Mlp, Run, check_trained, classified, sentences

from abele import poptorch
from abele.frontends.poptorch.models.batching import Batching
from abele.network import Locations, TensorLocation

RUN = Run(accumulation=3)
ON, OFF = TensorLocation(), TensorLocation(on_chip=False)
PHASES = ("layer0", "layer1", "layer2", "layer3")
Settings = poptorch.TensorLocationSettings


def serial(liveness: poptorch.Liveness) -> Any:
    """All phases on the first IPU."""
    listed = [poptorch.Phase(poptorch.Stage(name).ipu(0)) for name in PHASES]
    return poptorch.SerialPhasedExecution(*listed).setTensorsLiveness(liveness)


STRATEGIES: dict[str, tuple[Callable[[], Any], Locations]] = {
    "serial": (lambda: poptorch.SerialPhasedExecution(*PHASES), Locations(OFF, OFF, ON, OFF)),
    "serial, after the forward pass": (
        lambda: serial(poptorch.Liveness.OffChipAfterFwd),
        Locations(OFF, OFF, OFF, OFF),
    ),
    "serial, after each phase": (
        lambda: serial(poptorch.Liveness.OffChipAfterEachPhase),
        Locations(OFF, OFF, OFF, OFF),
    ),
    "parallel": (lambda: poptorch.ParallelPhasedExecution(*PHASES), Locations(OFF, OFF, OFF, OFF)),
    "parallel, live": (
        lambda: poptorch.ParallelPhasedExecution(*PHASES).sendTensorsOffChipAfterFwd(False),
        Locations(OFF, OFF, ON, OFF),
    ),
    "one phase": (lambda: poptorch.SerialPhasedExecution(poptorch.Phase(poptorch.Stage(*PHASES).ipu(0))), Locations()),
    "sharded": (poptorch.ShardedExecution, Locations()),
}


def locations(opts: poptorch.Options, *, training: bool = True) -> Locations:
    return Batching(opts, training).schedule().locations


@pytest.mark.parametrize("name", STRATEGIES)
def test_locations__by_default__are_those_of_the_strategy(name: str) -> None:
    strategy, expected = STRATEGIES[name]
    opts = RUN.options(strategy())
    assert locations(opts) == expected
    opts.TensorLocations.setWeightLocation(Settings().useOnChipStorage(True))
    opts.TensorLocations.setActivationLocation(Settings().useOnChipStorage(True))
    kept = Locations(expected.optimiser, ON, ON, expected.accumulators)
    assert locations(opts) == kept


def test_locations__of_inference__have_no_state() -> None:
    opts = poptorch.Options().setExecutionStrategy(poptorch.ParallelPhasedExecution(*PHASES))
    assert locations(opts, training=False) == Locations(weights=OFF, activations=OFF)


def test_locations__of_a_card_without_streaming_memory__are_on_chip() -> None:
    opts = RUN.options(serial(poptorch.Liveness.OffChipAfterEachPhase), system="c600")
    assert locations(opts) == Locations()


@pytest.mark.parametrize("name", STRATEGIES)
def test_training__in_phases__learns_what_pytorch_does(name: str) -> None:
    strategy, expected = STRATEGIES[name]
    wrapped = check_trained(
        Mlp(layers=4),
        RUN,
        strategy(),
        classified(RUN.samples, 8),
        optimiser=lambda p: poptorch.optim.AdamW(p, lr=0.01),
        eager=lambda p: torch.optim.AdamW(p, lr=0.01),
    )
    buffers = {name.partition("/")[0] for name in wrapped.executable.graph.remote_buffers}
    assert any(b.startswith("weights") for b in buffers) == (not expected.weights.on_chip)
    assert any(b.startswith("phase") for b in buffers) == (not expected.activations.on_chip)


@pytest.mark.parametrize(
    ("layers", "replicas", "accumulation"),
    [(1, 2, 3), *(pytest.param(*of, marks=pytest.mark.slow) for of in [(1, 1, 1), (2, 1, 3), (2, 2, 1)])],
)
def test_bert__in_phases_on_one_ipu__learns_what_pytorch_does(layers: int, replicas: int, accumulation: int) -> None:
    run = Run(accumulation=accumulation, size=2, replicas=replicas)
    names = ("embeddings", *(f"layer{n}" for n in range(layers)), "head")
    strategy = poptorch.SerialPhasedExecution(*(poptorch.Phase(poptorch.Stage(n).ipu(0)) for n in names))
    strategy.setTensorsLiveness(poptorch.Liveness.OffChipAfterEachPhase)
    model = Bert(layers=layers, blocks=[0] * len(names))
    check_trained(model, run, strategy, sentences(run.samples, 6, 50))


def test_stash__of_phases__learns_nearly_what_pytorch_does() -> None:
    check_trained(
        Mlp(layers=4),
        RUN,
        serial(poptorch.Liveness.OffChipAfterEachPhase),
        classified(RUN.samples, 8),
        edit=lambda opts: opts.Abele.stash("F143"),
        rtol=0.01,
        atol=0.01,
    )


def test_inference__in_phases__is_pytorchs() -> None:
    model = Mlp(layers=4).eval()
    opts = poptorch.Options().setExecutionStrategy(serial(poptorch.Liveness.OffChipAfterEachPhase))
    x, _ = classified(4, 8)
    torch.testing.assert_close(poptorch.inferenceModel(model, opts)(x), model(x).detach())
