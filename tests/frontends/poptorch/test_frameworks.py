"""Names, attributes and options that frameworks above PopTorch and set-up helpers of public examples use."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from poptorch_kit import Classifier

from abele import poptorch
from abele.frontends import popart_enums

X, LABELS = torch.linspace(-1, 1, 48).reshape(4, 12), torch.tensor([0, 1, 2, 3])


def options() -> poptorch.Options:
    return poptorch.Options().showCompilationProgressBar(False)


# --- hardware ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("whole_machine")
@pytest.mark.parametrize(("version", "found"), [("ipu2", 2), ("ipu21", 21), ("ipu1", 1)])
def test_hardware__that_the_environment_claims__is_the_modelled_system(
    version: str, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABELE_POPTORCH_HARDWARE", "1")
    monkeypatch.setenv("POPTORCH_IPU_MODEL_VERSION", version)
    assert poptorch.ipuHardwareIsAvailable()
    assert poptorch.ipuHardwareVersion() == found


def test_hardware__claimed__has_the_ipus_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABELE_POPTORCH_HARDWARE", "1")
    monkeypatch.setenv("ABELE_SYSTEM", "bow-2000")
    assert poptorch.ipuHardwareIsAvailable(4)
    assert not poptorch.ipuHardwareIsAvailable(8)


@pytest.mark.parametrize("value", [None, "", "0"])
def test_hardware__not_claimed__is_not_there(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ABELE_POPTORCH_HARDWARE", raising=False)
    if value is not None:
        monkeypatch.setenv("ABELE_POPTORCH_HARDWARE", value)
    assert not poptorch.ipuHardwareIsAvailable()
    with pytest.raises(AssertionError, match=r"No IPU hardware available on this system(.|\n)*hardware=True"):
        poptorch.ipuHardwareVersion()


PROGRAM = """
import abele.poptorch
abele.poptorch.install(hardware=True)
from importlib.util import find_spec
assert find_spec("poptorch") is not None
import popart
import poptorch
from poptorch import DataLoaderMode, PoplarExecutor
from poptorch._impl import rewrapModelIfNecessary, unwrapModelIfNecessary
from poptorch.optim import LAMB, AdamW
assert poptorch._poplar_executor.PoplarExecutor is PoplarExecutor
assert poptorch.ipuHardwareIsAvailable() and poptorch.ipuHardwareVersion() == 2
import os
print(os.environ["ABELE_POPTORCH_HARDWARE"])  # What child processes ask.
print(int(popart.RecomputationType.Pipeline), int(popart.SubgraphCopyingStrategy.JustInTime))
"""


def test_install__with_hardware__gives_frameworks_what_they_import() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("POPTORCH", "ABELE"))}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("1\n3 1\n", "")


# --- attributes --------------------------------------------------------------------------------------------------


def test_executor__attributes_that_frameworks_read__follow_its_life() -> None:
    model = Classifier()
    wrapped = poptorch.trainingModel(model, options())
    assert wrapped._user_model is model
    assert wrapped._options.toDict()["replication_factor"] == 1
    assert (wrapped._executable, wrapped._executable_inputs, wrapped._is_attached) == (None, None, False)
    wrapped(X, LABELS)
    assert wrapped._executable is wrapped.executable
    assert [tuple(t.shape) for t in wrapped._executable_inputs.args] == [(4, 12), (4,)]
    assert wrapped._is_attached
    assert wrapped.isCompiled()
    wrapped.destroy()
    assert (wrapped._executable, wrapped._executable_inputs, wrapped._is_attached) == (None, None, False)


def test_executor__train_and_eval__give_the_wrapped_model_back() -> None:
    model = Classifier()
    wrapped = poptorch.inferenceModel(model, options())
    assert wrapped.eval() is wrapped
    assert not model.training
    assert wrapped.train() is wrapped
    assert model.training


@pytest.mark.parametrize(
    "call",
    [("to", "cpu"), ("to", torch.float16), ("cpu",), ("half",), ("float",), ("double",), ("bfloat16",)],
    ids=str,
)
def test_executor__calls_that_leave_the_machine__warn(call: tuple[Any, ...], caplog: pytest.LogCaptureFixture) -> None:
    name, *args = call
    model = Classifier()
    wrapped = poptorch.trainingModel(model, options())
    with caplog.at_level(logging.WARNING, "poptorch::python"):
        assert getattr(wrapped, name)(*args) is model
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{name}() of a wrapped model changes the model inside and returns that: what it returns runs on the host, not "
        f"on the IPU, and a compiled program stays as it is. Call {name}() on the model before it is wrapped, and go "
        "on with the wrapped model."
    )


def test_executor__an_attribute_named_like_such_a_call__is_itself() -> None:
    model = Classifier()
    model.type = "classifier"  # type: ignore[assignment, method-assign]
    assert poptorch.inferenceModel(model, options()).type == "classifier"


def test_impl__unwrapped_model__is_plain_until_it_is_wrapped_again() -> None:
    impl = importlib.import_module("abele.poptorch._impl")
    model = Classifier()
    before = model.first.weight.detach().clone()
    wrapped = poptorch.trainingModel(model, options())
    wrapped(X, LABELS)
    impl.unwrapModelIfNecessary(model)
    assert type(model) is Classifier
    assert not torch.equal(model.state_dict()["first.weight"], before)
    impl.rewrapModelIfNecessary(model)
    assert type(model).__name__ == "PoptorchClassifier"
    impl.rewrapModelIfNecessary(plain := Classifier())
    assert type(plain) is Classifier


# --- options of the layer below ----------------------------------------------------------------------------------


def helper(opts: poptorch.Options) -> poptorch.Options:
    """Sets what helpers of public examples (BERT, ViT, CNNs, GPT-2) do, all at once."""
    popart = popart_enums
    take = opts._Popart.set
    take("saveInitializersToFile", "weights.onnx")
    take("autoRecomputation", int(popart.RecomputationType.Pipeline))
    take("disableGradAccumulationTensorStreams", True)
    take("disableOptimizerStateTensorStreams", True)
    schedule = popart.AccumulateOuterFragmentSchedule.OverlapMemoryOptimized
    take("accumulateOuterFragmentSettings.schedule", int(schedule))
    take("accumulateOuterFragmentSettings.excludedVirtualGraphs", ["0"])
    take("batchSerializationSettings.factor", 1)
    take("batchSerializationSettings.method", int(popart.BatchSerializationMethod.Loop))
    take("batchSerializationSettings.transformContext", int(popart.BatchSerializationTransformContext.Fwd))
    take("batchSerializationSettings.concatOnVirtualGraphChange", False)
    take("executionPhaseSettings.schedule", int(popart.ExecutionPhaseSchedule.Interleaving))
    take("outlineThreshold", 10.0).set("outlineThreshold", 10).set("outlineSequenceBreakCost", 100000)
    take("enableOutlining", True)
    take("subgraphCopyingStrategy", int(popart.SubgraphCopyingStrategy.JustInTime))
    take("decomposeGradSum", True)
    take("scheduleNonWeightUpdateGradientConsumersEarly", True)
    take("enableGradientAccumulation", True).set("accumulationFactor", 1)
    take("explicitRecomputation", False).set("enableExplicitMainLoops", False).set("useHostCopyOps", False)
    take("enableExplicitIR", True)
    take("swapLimitScheduler", 0).set("timeLimitScheduler", -1.0).set("kahnTieBreaker", "fifo")
    take("groupHostSync", True).set("enableMergeExchange", True)
    take("mergeVarUpdate", int(popart.MergeVarUpdateType.Off))
    take("replicatedCollectivesSettings.prepareScheduleForMergingCollectives", True)
    take("replicatedCollectivesSettings.mergeAllReduceCollectives", True)
    take("convolutionOptions", {"availableMemoryProportion": "0.3", "partialsType": "half"})
    take("matmulOptions", {"availableMemoryProportion": "0.4"})
    take("partialsTypeMatMuls", "half")
    take("defaultBufferingDepth", 3)
    take("virtualGraphMode", int(popart.VirtualGraphMode.Manual))
    opts._Popart.setPatterns({"TiedGather": True, "TiedGatherAccumulate": True, "UpdateInplacePrioritiesForIpu": True})
    opts._Popart.setEngineOptions(
        {
            "opt.useAutoloader": "true",
            "opt.internalExchangeOptimisationTarget": "balanced",
            "opt.maxComputeSetsPerLoweredCopy": "6",
            "target.syncReplicasIndependently": "true",
            "target.hostSyncTimeout": "3000",
            "exchange.streamBufferOverlap": "hostRearrangeOnly",
            "debug.allowOutOfMemory": "true",
        }
    )
    return opts


def test_popart_options__of_public_helpers__are_taken_and_train_as_without() -> None:
    losses = []
    for make in (helper, lambda opts: opts):
        torch.manual_seed(0)
        model = poptorch.trainingModel(Classifier(), make(options()))
        losses.append([float(model(X, LABELS)[1]) for _ in range(2)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_popart_options__that_mean_something_here__have_effect() -> None:
    settings = helper(options()).settings("name")
    assert (settings.memory_proportion, settings.partials) == (0.3, "f16")
    assert options().setAvailableMemoryProportion({"IPU0": 0.1}).settings("name").memory_proportion == 0.1
    opts = options()
    opts._Popart.set("enableStableNorm", True).set("numIOTiles", 64).set("enableEngineCaching", True)
    assert opts.settings("name").stable_norms
    assert opts.settings("name").cache == "session_cache"
    assert opts.io_tiles == 64
    opts._Popart.set("cachePath", "elsewhere")
    assert opts.settings("name").cache == "elsewhere"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("saveInitializersToFile", True, "Unknown value type"),
        ("accumulateOuterFragmentSettings.excludedVirtualGraphs", True, "Unknown value type"),
        ("convolutionOptions", {"availableMemoryProportion": "much"}, "is a number from 0 to 1, got 'much'"),
        ("partialsTypeMatMuls", "quarter", "partial sums are 'half' or 'float', got 'quarter'"),
        ("saveInitialisersToFile", "w.onnx", "Unknown string option saveInitialisersToFile"),
    ],
)
def test_popart_options__wrong__are_refused_by_name(name: str, value: object, text: str) -> None:
    opts = options()
    opts._Popart.set(name, value)
    with pytest.raises((poptorch.Error, AssertionError), match=text):
        poptorch.inferenceModel(torch.nn.Linear(3, 2), opts)(torch.ones(1, 3))
