"""Every setter of options: what it changes for a model, or that it is checked and kept for machines of several IPUs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from abele import poptorch
from abele.frontends.poptorch.models.batching import Batching
from abele.frontends.poptorch.options.checked import CheckedOptions

Setter = Callable[[poptorch.Options], Any]


def told_to_session(opts: poptorch.Options) -> Any:
    """Settings for the session of a model."""
    return opts.settings("model")


def schedule(opts: poptorch.Options) -> Any:
    """Schedule of a call of training over its micro-batches."""
    return Batching(opts.clone(), training=True).schedule()


def loaded(opts: poptorch.Options) -> Any:
    """Batch size and samples that this process loads."""
    loader = poptorch.DataLoader(opts.clone(), torch.arange(64), batch_size=2)
    return loader.combinedBatchSize, [batch.tolist() for batch in loader]


def compiled(opts: poptorch.Options) -> Any:
    model = poptorch.inferenceModel(torch.nn.Linear(3, 2), opts.clone().showCompilationProgressBar(False))
    model.compile(torch.ones(4, 3))
    return model


def attached(opts: poptorch.Options) -> bool:
    """True if a model is on the device once it is compiled."""
    return bool(compiled(opts).isAttachedToDevice())


def sources(opts: poptorch.Options) -> Any:
    """The files that operations are of."""

    class Plain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    model = poptorch.inferenceModel(Plain(), opts.clone().showCompilationProgressBar(False))
    model.compile(torch.ones(4, 3))
    return [op.debug.file for op in model._compiled.captured.net.ops]


def warned(opts: poptorch.Options) -> int:
    """Warnings of an optimiser with an attribute that no device knows."""
    model = torch.nn.Linear(3, 2)
    optimiser = poptorch.optim.SGD(model.parameters(), lr=0.1)
    optimiser.unheard_of = 3
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        poptorch.trainingModel(model, opts.clone(), optimiser)
    return len(told)


AWAY = poptorch.TensorLocationSettings().useOnChipStorage(False)
ACT: dict[str, tuple[Setter, Callable[[poptorch.Options], Any]]] = {
    "deviceIterations": (lambda o: o.deviceIterations(3), schedule),
    **{
        f"TensorLocations.set{kind}Location": (
            lambda o, kind=kind: getattr(o.TensorLocations, f"set{kind}Location")(AWAY),
            schedule,
        )
        for kind in ("Activation", "Weight", "Optimizer", "Accumulator")
    },
    "TensorLocations.numIOTiles": (lambda o: o.TensorLocations.numIOTiles(32), schedule),
    "replicationFactor": (lambda o: o.replicationFactor(2), schedule),
    "inputReplicaGrouping": (
        lambda o: o.replicationFactor(4).inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive),
        schedule,
    ),
    "outputMode": (lambda o: o.outputMode(poptorch.OutputMode.Sum), schedule),
    "setAvailableMemoryProportion": (lambda o: o.setAvailableMemoryProportion({"IPU0": 0.3}), told_to_session),
    "enableStableNorm": (lambda o: o.enableStableNorm(True), told_to_session),
    "syncPattern": (lambda o: o.syncPattern(poptorch.SyncPattern.SinglePipeline), told_to_session),
    "enableSyntheticData": (lambda o: o.enableSyntheticData(True), told_to_session),
    "system": (lambda o: o.system("gc200"), told_to_session),
    "useOfflineIpuTarget": (lambda o: o.useOfflineIpuTarget(1), told_to_session),
    "showCompilationProgressBar": (lambda o: o.showCompilationProgressBar(False), told_to_session),
    "enableExecutableCaching": (lambda o: o.enableExecutableCaching("folder"), told_to_session),
    "modelName": (lambda o: o.modelName("other"), told_to_session),
    "Training.gradientAccumulation": (lambda o: o.Training.gradientAccumulation(3), schedule),
    "Training.accumulationAndReplicationReductionType": (
        lambda o: o.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum),
        schedule,
    ),
    "Training.setMeanAccumulationAndReplicationReductionStrategy": (
        lambda o: o.Training.setMeanAccumulationAndReplicationReductionStrategy(poptorch.MeanReductionStrategy.Running),
        schedule,
    ),
    "Training.setAutomaticLossScaling": (lambda o: o.Training.setAutomaticLossScaling(True), told_to_session),
    "Training.setConvolutionDithering": (lambda o: o.Training.setConvolutionDithering(True), told_to_session),
    "Precision.enableFloatingPointExceptions": (
        lambda o: o.Precision.enableFloatingPointExceptions(True),
        told_to_session,
    ),
    "Precision.enableStochasticRounding": (lambda o: o.Precision.enableStochasticRounding(True), told_to_session),
    "Precision.setPartialsType": (lambda o: o.Precision.setPartialsType(torch.half), told_to_session),
    "Distributed.configureProcessId": (lambda o: o.Distributed.configureProcessId(1, 2), loaded),
    "connectionType": (lambda o: o.connectionType(poptorch.ConnectionType.OnDemand), attached),
    "sourceLocationExcludes": (lambda o: o.sourceLocationExcludes(["test_setters"]), sources),
    "relaxOptimizerAttributesChecks": (lambda o: o.relaxOptimizerAttributesChecks(), warned),
    "Abele.system": (lambda o: o.Abele.system("gc200"), told_to_session),
    "Abele.mode": (lambda o: o.Abele.mode("tiles"), told_to_session),
    "Abele.stash": (lambda o: o.Abele.stash("F143"), schedule),
    "Abele.threads": (lambda o: o.Abele.threads(1), told_to_session),
    "Abele.allowOutOfMemory": (lambda o: o.Abele.allowOutOfMemory(), told_to_session),
    "Abele.dumpPasses": (lambda o: o.Abele.dumpPasses("folder"), told_to_session),
    "Abele.recompute": (lambda o: o.Abele.recompute(), told_to_session),
    "Abele.skipHidden": (lambda o: o.Abele.skipHidden(), told_to_session),
    "Abele.sharedFunctions": (lambda o: o.Abele.sharedFunctions(), told_to_session),
    "Abele.recordExponents": (lambda o: o.Abele.recordExponents("weights", every=10), told_to_session),
    "Abele.pipelineSchedule": (lambda o: o.Abele.pipelineSchedule("interleaved"), schedule),
}
"""Setters whose effect is seen in what a call, a session or a loader is made with."""

SEEN_ELSEWHERE = {
    "randomSeed": "test_random.py",
    "broadcastBuffers": "test_replicas.py",
    "updatableNamedBuffers": "test_run_options.py",
    "logCycleCount": "test_run_options.py",
    "enableProfiling": "test_run_options.py",
    "logDir": "test_run_options.py",
    "maxRepeatLogs": "test_errors.py",
    "disableModuleNamescope": "test_run_options.py",
    "appendToLocationExcludes": "test_run_options.py",
    "setExecutionStrategy": "test_strategies.py",
    "autoRoundNumIPUs": "test_placement.py",
    "Abele.batchNormReplicas": "test_norm_replicas.py",
    "Distributed.setEnvVarNames": "test_option_sources.py",
    "Distributed.disable": "test_option_sources.py",
}
"""Setters of which another file of tests shows what they do."""

KEPT = {
    "useIpuModel": "use_model",
    "useIpuId": "ipu_id",
    "Jit.traceModel": "trace_model",
}
"""Setters that are checked and kept without effect, and the options with the reason in their words."""

WITHOUT_MEANING = {"Precision.halfFloatCasting", "Precision.runningStatisticsAlwaysFloat"}
"""Deprecated: they warn that they change nothing."""

OF_ALL = {"set", "createOrSet", "deleteIfExists", "clone", "loadFromFile", "from_json"}


def setters() -> set[str]:
    """Every method of options and their groups that gives the options back."""
    found: set[str] = set()
    classes: dict[str, type[CheckedOptions]] = {"": poptorch.Options, **poptorch.Options.groups}
    for group, kind in classes.items():
        for name in dir(kind):
            returns = getattr(getattr(kind, name), "__annotations__", {}).get("return")
            if returns == "Self" and not name.startswith("_") and name not in OF_ALL:
                found.add(f"{group}.{name}" if group else name)
    return found


def test_setters__all_of_them__are_in_one_list_of_what_they_do() -> None:
    lists = [set(ACT), set(SEEN_ELSEWHERE), set(KEPT), WITHOUT_MEANING]
    assert setters() == set().union(*lists)
    assert sum(map(len, lists)) == len(setters())


@pytest.mark.usefixtures("whole_machine")  # A machine of the environment is that of offline targets too.
@pytest.mark.parametrize("name", ACT)
def test_setter__that_acts__changes_what_a_call_is_made_with(name: str) -> None:
    setter, observe = ACT[name]
    before, opts = observe(poptorch.Options()), poptorch.Options()
    setter(opts)
    assert observe(opts) != before


@pytest.mark.parametrize("name", SEEN_ELSEWHERE)
def test_setter__seen_elsewhere__is_called_there(name: str) -> None:
    text = (Path(__file__).parent / SEEN_ELSEWHERE[name]).read_text(encoding="utf-8")
    assert f"{name.rsplit('.', 1)[-1]}(" in text


@pytest.mark.parametrize("name", KEPT)
def test_setter__that_keeps__says_so_in_its_table(name: str) -> None:
    group = name.rsplit(".", 1)[0] if "." in name else ""
    table = poptorch.Options.groups[group].table if group else poptorch.Options.table
    option = table[KEPT[name]]
    assert not option.honoured
    assert option.doc
