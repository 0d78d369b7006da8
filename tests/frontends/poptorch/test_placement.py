"""Blocks on the IPUs that strategies put them on: models compute and learn what PyTorch's do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import placement_kit as kit
import pytest
import torch
from placement_kit import Bert, Cnn, Mlp, Run, check_trained, classified, sentences, trained
from torch import nn
from torch.utils.checkpoint import checkpoint

from abele import poptorch
from abele.errors import MachineError

RUN = Run()
AUTOMATIC = poptorch.AutoStage


def places(wrapped: Any) -> set[str]:
    """The places of the ops that were captured."""
    return {str(op.place) for op in wrapped._compiled.captured.net.ops}


def reversed_places() -> poptorch.ParallelPhasedExecution:
    return poptorch.ParallelPhasedExecution("layer0", "layer1", "layer2")


STRATEGIES: dict[str, tuple[Callable[[], Any], list[int | None], set[str]]] = {
    "pipeline by IPU": (lambda: None, [0, 1, 2], {"@ipu0", "@ipu1:stage1", "@ipu2:stage2"}),
    "pipeline by block": (
        lambda: poptorch.PipelinedExecution(AUTOMATIC.AutoIncrement),
        [0, 1, 0],
        {"@ipu0", "@ipu1:stage1", "@stage2"},
    ),
    "listed stages": (
        lambda: poptorch.PipelinedExecution(poptorch.Stage("layer0", "layer1").ipu(1), poptorch.Stage("layer2").ipu(0)),
        [None, None, None],
        {"@ipu1", "@stage1"},
    ),
    "a gap between IPUs": (lambda: None, [0, 0, 3], {"@ipu0", "@ipu3:stage1"}),
    "no IPUs": (lambda: None, [None] * 3, {"@ipu0", "@ipu1:stage1", "@ipu2:stage2"}),
    "sharded there and back": (lambda: poptorch.ShardedExecution(), [0, 1, 0], {"@ipu0", "@ipu1"}),
    "sharded by name": (
        lambda: poptorch.ShardedExecution("layer0", "layer1", "layer2"),
        [None] * 3,
        {"@ipu0", "@ipu1", "@ipu2"},
    ),
    "serial phases": (
        lambda: poptorch.SerialPhasedExecution("layer0", poptorch.Phase("layer1", "layer2").ipus(1)),
        [None] * 3,
        {"@ipu0", "@ipu1:phase1"},
    ),
    "parallel phases": (reversed_places, [None] * 3, {"@ipu0", "@ipu1:phase1", "@phase2"}),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_training__by_each_strategy__learns_what_pytorch_does(name: str) -> None:
    strategy, ipus, expected = STRATEGIES[name]
    wrapped = check_trained(Mlp(ipus=ipus), RUN, strategy(), classified(RUN.samples, 8))
    assert places(wrapped) == expected


def test_training__with_batch_norm_in_stages__keeps_running_statistics() -> None:
    check_trained(Cnn(), RUN, None, classified(RUN.samples, 3, 6, 6))


@pytest.mark.parametrize("kind", [0, 1, 3], ids=["none", "cheap", "stages"])
def test_recomputation__of_each_kind__changes_no_result(kind: int) -> None:
    run = Run(accumulation=4, size=2)
    check_trained(
        Bert(layers=1, blocks=[0, 0, 1]),
        run,
        None,
        sentences(run.samples, 6, 50),
        edit=lambda opts: opts._Popart.set("autoRecomputation", kind),
    )


def test_training__of_tied_embeddings_on_two_ipus__sums_their_gradients() -> None:
    run = Run(accumulation=5, size=2, replicas=2)
    check_trained(Bert(layers=2, blocks=[0, 1, 1, 2]), run, None, sentences(run.samples, 6, 50), system="bow-pod16")


OPTIMISERS: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]] = {
    "adam, clipped": (lambda p: poptorch.optim.Adam(p, lr=0.01, max_grad_norm=0.05), None),
    "adamw": (lambda p: poptorch.optim.AdamW(p, lr=0.01), lambda p: torch.optim.AdamW(p, lr=0.01)),
    "lamb": (lambda p: poptorch.optim.LAMB(p, lr=0.01), None),
    "scaled loss": (
        lambda p: poptorch.optim.SGD(p, lr=0.1, loss_scaling=8.0),
        lambda p: torch.optim.SGD(p, lr=0.1),
    ),
}


@pytest.mark.parametrize("strategy", [None, poptorch.ShardedExecution()], ids=["pipelined", "sharded"])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers__over_ipus__do_what_they_do_on_one(name: str, strategy: Any) -> None:
    make, eager = OPTIMISERS[name]
    data = classified(RUN.samples, 8)
    model = Mlp()
    alone = copy.deepcopy(model)
    if eager is not None:
        wrapped = check_trained(model, RUN, strategy, data, optimiser=make, eager=eager)
    else:
        several, wrapped = trained(model, RUN, RUN.options(strategy), make(model.parameters()), data)
        for _ in range(1):
            whole = poptorch.Block  # one stage
        one, _ = trained(alone, RUN, RUN.options(one_ipu()), make(alone.parameters()), data)
        torch.testing.assert_close(several, one, rtol=2e-5, atol=2e-6)
        kit.same_weights(model, alone)
    assert {f"Accl1___layers.{n}.weight" for n in range(3)} <= set(wrapped._optimizer.state_dict()["ipu_state"]) or (
        "scaled" in name
    )


def one_ipu() -> Any:
    """All of an :class:`Mlp` on one IPU."""
    return poptorch.ShardedExecution(poptorch.Stage("layer0", "layer1", "layer2").ipu(0))
