"""Pipelines: stages by scope and by list, on models of every kind; each against the model on one IPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from abele.frontends.keras import ipu

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 6)).astype(np.float32)
Y = np.tanh(X.sum(1, keepdims=True))
Ipus = Callable[..., Any]


def functional(scope: Any) -> Any:
    x = keras.Input((6,))
    with scope(0):
        first = layers.Dense(8, activation="tanh")(x)
    with scope(1):
        second = layers.Dense(8, activation="relu")(first) + first
        y = layers.Dense(1)(layers.LayerNormalization()(second))
    return keras.Model(x, y)


def sequential(scope: Any) -> Any:
    with scope(0):
        first = [keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dropout(0.2, seed=3)]
    with scope(1):
        second = [layers.Dense(8, activation="relu"), layers.Dense(1)]
    return keras.Sequential([*first, *second])


def subclass(scope: Any) -> Any:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = layers.Dense(8, activation="tanh"), layers.Dense(1)

        def call(self, x: Any) -> Any:
            with scope(0):
                hidden = self.first(x)
            with scope(1):
                return self.second(hidden)

    return Net()


def compiled(make: Callable[[Any], Any], scope: Any, steps: int) -> Any:
    keras.utils.set_random_seed(1)
    made = make(scope)
    made.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", metrics=["mae"], steps_per_execution=steps)
    return made


def plain(stage: int) -> Any:
    return nullcontext()


def trained(model: Any, batch: int) -> Any:
    return model.fit(X, Y, batch_size=batch, epochs=2, verbose=0, shuffle=False)


@pytest.mark.parametrize(
    ("make", "schedule"),
    [
        pytest.param(make, schedule, marks=() if (make, schedule) == (subclass, "Grouped") else pytest.mark.slow)
        for make in (functional, sequential, subclass)
        for schedule in ("Grouped", "Interleaved", "Sequential")
    ],
)
def test_pipeline__two_stages__trains_as_on_one_ipu(make: Callable[[Any], Any], schedule: str, ipus: Ipus) -> None:
    with ipus(1):
        theirs = compiled(make, plain, 8)
    theirs.set_gradient_accumulation_options(4, "mean")
    wanted = trained(theirs, 4), theirs.predict(X, batch_size=4, verbose=0), theirs.evaluate(X, Y, 4, verbose=0)
    with ipus(2):
        ours = compiled(make, ipu.PipelineStage, 8)
    ours.set_pipelining_options(4, None, None, "mean", pipeline_schedule=schedule)
    found = trained(ours, 4), ours.predict(X, batch_size=4, verbose=0), ours.evaluate(X, Y, 4, verbose=0)
    for name in wanted[0].history:
        np.testing.assert_allclose(found[0].history[name], wanted[0].history[name], rtol=2e-5)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[2], wanted[2], rtol=1e-4)
    assert ours.ipu_report.target["num_ipus"] == 2


def test_pipeline__stages_by_objects__are_those_of_a_list(ipus: Ipus, capsys: pytest.CaptureFixture[str]) -> None:
    with ipus(2):
        ours = compiled(functional, plain, 4)
    found = ours.get_pipeline_stage_assignment()
    assert [a.layer.name.rstrip("_0123456789") for a in found] == [
        "dense",
        "dense",
        "add",
        "layer_normalization",
        "dense",
    ]
    assert [layer.name for layer in found[2].inbound_layers] == [found[1].layer.name, found[0].layer.name]
    for number, one in enumerate(found):
        one.pipeline_stage = int(number > 0)
    ours.set_pipeline_stage_assignment(found)
    ours.print_pipeline_stage_assignment_summary()
    assert "layer_normalization" in capsys.readouterr().out
    ours.set_pipelining_options(4, device_mapping=[1, 0])
    assert set(trained(ours, 4).history) == {"loss", "mae"}
    ours.reset_pipeline_stage_assignment()
    assert {a.pipeline_stage for a in ours.get_pipeline_stage_assignment()} == {None}


def test_pipeline__called_inside__beats_made_inside(ipus: Ipus) -> None:
    with ipus(2):
        with ipu.PipelineStage(0):
            first, second = layers.Dense(4), layers.Dense(1)
        x = keras.Input((6,))
        hidden = first(x)
        with ipu.PipelineStage(1):
            y = second(hidden)
        made = keras.Model(x, y)
    assert [a.pipeline_stage for a in made.get_pipeline_stage_assignment()] == [0, 1]


def test_pipeline__replicas__are_those_that_stages_leave(ipus: Ipus) -> None:
    with ipus(4):
        ours = compiled(functional, ipu.PipelineStage, 8)
    ours.set_pipelining_options(
        4, None, None, "mean", pipeline_schedule=ipu.pipelining_ops.PipelineSchedule.Interleaved
    )
    trained(ours, 4)
    target = ours.ipu_report.target
    assert (target["num_replicas"], target["whole_system_num_ipus"]) == (2, 4)


def test_pipeline__accumulated_outfeed__gives_means_of_an_update(ipus: Ipus) -> None:
    with ipus(2):
        ours = compiled(functional, ipu.PipelineStage, 16)
    ours.set_pipelining_options(16, accumulate_outfeed=True)
    ours.optimizer.learning_rate = 0.0
    logs = ours.fit(X, Y, batch_size=4, verbose=0, shuffle=False).history
    assert set(logs) == {"loss", "mae"}


def test_pipeline__options_of_stages__reach_products(ipus: Ipus) -> None:
    options = [ipu.pipelining_ops.PipelineStageOptions(matmul_options={"availableMemoryProportion": "0.2"})] * 2
    with ipus(2):
        ours = compiled(functional, ipu.PipelineStage, 4)
    ours.set_pipelining_options(4, forward_propagation_stages_poplar_options=options, offload_activations=True)
    trained(ours, 4)
    from abele.frontends.keras.model.state import state_of

    net = state_of(ours).programs.last.step.network
    assert {op.hint.proportion for op in net.ops if op.kind in ("matmul", "linear") and op.hint} == {0.2}
