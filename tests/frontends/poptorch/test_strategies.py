"""Blocks of models, and the stages and phases that strategies make of them."""

from __future__ import annotations

import copy
import inspect
import io
import math
import pickle
import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_kit import Mlp, Run, classified
from test_executor import options
from torch import nn

from abele import poptorch
from abele.errors import AbeleError
from abele.frontends.poptorch.capture import capture
from abele.frontends.poptorch.models.compiling import Placing
from abele.network import evaluate
from abele.network.passes.stages import AssignStages
from support import sweeps
from support.examples import examples


class Two(nn.Module):
    """Two layers, each a block."""

    def __init__(self) -> None:
        super().__init__()
        self.first = poptorch.BeginBlock(nn.Linear(3, 3), "first", ipu_id=0)
        self.last = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.first(x)
        with poptorch.Block("last", ipu_id=1):
            x = self.last(x)
        return x, poptorch.identity_loss(x, "sum")


def strategy_options(*strategy: Any, iterations: int = 1, accumulation: int = 1) -> poptorch.Options:
    opts = options(iterations, accumulation)
    return opts.setExecutionStrategy(strategy[0]) if strategy else opts


X = torch.ones(6, 3)


def test_pipeline__too_few_micro_batches_for_training__is_refused_in_poptorchs_words() -> None:
    model = poptorch.trainingModel(Two(), strategy_options(accumulation=2))
    with pytest.raises(poptorch.Error) as caught:
        model(X)
    assert caught.value.message == (
        "poptorch.Options().Training.gradientAccumulation must be greater than or equal to the number of pipeline "
        "stages (3) when using poptorch.PipelinedExecution. Please note that a model with 2 pipeline stages in "
        "PopTorch will have an additional 1 stages when training."
    )
    poptorch.trainingModel(model.model, strategy_options(accumulation=3))(X)


def test_pipeline__too_few_iterations_of_inference__is_refused_and_sharding_is_not() -> None:
    with pytest.raises(poptorch.Error, match=r"deviceIterations must be greater .* pipeline stages \(2\)"):
        poptorch.inferenceModel(Two(), strategy_options())(X)
    model = Two()
    got, _ = poptorch.inferenceModel(model, strategy_options(poptorch.ShardedExecution("first", "last")))(X)
    torch.testing.assert_close(got, model(X)[0].detach())


def test_pipeline__block_that_no_stage_names__is_refused() -> None:
    model = poptorch.inferenceModel(Two(), strategy_options(poptorch.PipelinedExecution("first", "other")))
    with pytest.raises(AssertionError, match="Unknown block 'last'"):
        model(X)


def test_stages__given_or_made__number_blocks() -> None:
    stage = poptorch.Stage("a", "b").ipu(3)
    strategy = poptorch.PipelinedExecution(stage, "c")
    assert strategy.stage("b") is stage
    assert (stage.blocks, stage._ipu_id) == (["a", "b"], 3)
    assert strategy.stage_of("c", None) == 1
    assert strategy.backendOptions() == {"execution_mode": 0}
    automatic = poptorch.ShardedExecution(poptorch.AutoStage.AutoIncrement)
    assert [automatic.stage_of(name, 0) for name in "xyx"] == [0, 1, 0]
    assert poptorch.PipelinedExecution(poptorch.AutoStage.SameAsIpu).stage_of("x", 4) == 4
    assert automatic.backendOptions()["execution_mode"] == 1


def test_phases__serial_and_parallel__hold_their_stages() -> None:
    serial = poptorch.SerialPhasedExecution([poptorch.Stage("a"), poptorch.Stage("b")], poptorch.Phase("c", "d"))
    serial.phase(0).ipus(0, 1)
    serial.phase(1).stage(0).ipu(2)
    serial.setTensorsLiveness(poptorch.Liveness.OffChipAfterFwd).useSeparateBackwardPhase(True)
    assert (serial.stage("b")._ipu_id, serial.stage("d")._ipu_id, serial.stage("d")._phase_id) == (1, 2, 1)
    assert serial.backendOptions() == {
        "execution_mode": 2,
        "separate_backward_phase": True,
        "serial_phases_execution": True,
        "tensors_liveness": 1,
    }
    parallel = poptorch.ParallelPhasedExecution("a", "b").sendTensorsOffChipAfterFwd(False)
    assert [parallel.stage(name)._ipu_id for name in "ab"] == [0, 1]
    assert parallel.backendOptions()["tensors_liveness"] == 0


def labelled(forward: Any) -> type[nn.Module]:
    """A model of three layers with a forward pass of its own."""
    return type("Labelled", (Mlp,), {"forward": forward})


def _outside(self: Any, x: torch.Tensor, labels: torch.Tensor) -> Any:
    with poptorch.Block("first", ipu_id=0):
        x = self.layers[0](x)
    x = self.layers[1](x)
    with poptorch.Block("last", ipu_id=1):
        return nn.functional.cross_entropy(self.layers[2](x), labels)


def _started(self: Any, x: torch.Tensor, labels: torch.Tensor) -> Any:
    x = self.layers[0](x)
    poptorch.Block.start("started", 0)
    with poptorch.Block("inner", 1):
        x = self.layers[1](x)
    return nn.functional.cross_entropy(self.layers[2](x), labels)


def _before(self: Any, x: torch.Tensor, labels: torch.Tensor) -> Any:
    x = self.layers[0](x)
    for number in (1, 2):
        poptorch.Block.start(f"layer{number}", ipu_id=number)
        x = self.layers[number](x)
    return nn.functional.cross_entropy(x, labels)


def _twice(self: Any, x: torch.Tensor, labels: torch.Tensor) -> Any:
    for name, layer, ipu in zip("aba", self.layers, (0, 1, 0), strict=True):
        poptorch.Block.start(name, ipu)
        x = layer(x)
    return nn.functional.cross_entropy(x, labels)


def _of_two_ipus(self: Any, x: torch.Tensor, labels: torch.Tensor) -> Any:
    for layer, ipu in zip(self.layers, (0, 1, 2), strict=True):
        with poptorch.Block("a", ipu):
            x = layer(x)
    return nn.functional.cross_entropy(x, labels)


def _none(self: Any, x: torch.Tensor, labels: torch.Tensor) -> Any:
    for layer in self.layers:
        x = layer(x)
    return nn.functional.cross_entropy(x, labels)


MISPLACED: dict[str, tuple[type[nn.Module], Any, Any, str]] = {
    "outside": (labelled(_outside), None, None, r"No active Block: aten.linear is in no block[^$]*layers/1/linear"),
    "after a context": (labelled(_started), None, None, r"No active Block: aten.linear[^$]*context ended before it"),
    "before a stage on another IPU": (
        labelled(_before),
        lambda: poptorch.PipelinedExecution("layer1", "layer2"),
        None,
        "Block 'layer1' of stage 0 is on IPU 1, and what comes before the first block is in stage 0, too, on IPU 0"
        r"[^$]*before it comes aten.linear, layers/0/linear",
    ),
    "twice": (
        labelled(_twice),
        None,
        None,
        r"Cyclic placement: linear in stage 0 \(block 'a'\) reads what stage 1 \(block 'b'\) computes[^$]*"
        r"block 'a' begins again at .*test_strategies.py:\d+",
    ),
    "two IPUs": (labelled(_of_two_ipus), None, None, r"Block 'a' is used twice, for IPU 0 and for IPU 1"),
    "backwards": (
        Mlp,
        lambda: poptorch.PipelinedExecution("layer2", "layer1", "layer0"),
        None,
        r"linear in stage 1 \(block 'layer1'\) reads what stage 2 \(block 'layer0'\) computes",
    ),
    "not listed": (Mlp, lambda: poptorch.PipelinedExecution("layer0", "layer1"), None, "Unknown block 'layer2'"),
    "never run": (
        Mlp,
        lambda: poptorch.ShardedExecution("layer0", "layer1", "layer2", "layer3"),
        None,
        "the model never runs block 'layer3', which the execution strategy lists",
    ),
    "no blocks": (
        labelled(_none),
        lambda: poptorch.SerialPhasedExecution("a", "b"),
        None,
        "never runs blocks 'a', 'b'",
    ),
    "stage on two IPUs": (
        Mlp,
        lambda: poptorch.PipelinedExecution(poptorch.Stage("layer0", "layer1"), "layer2"),
        None,
        "Block 'layer1' of stage 0 is on IPU 1, and others of the stage on IPU 0",
    ),
    "three IPUs": (
        Mlp,
        None,
        lambda o: o.autoRoundNumIPUs(False),
        r"The model specifies the use of 3 IPUs, however PopTorch must reserve a minimum of 4 in order to allow the "
        r"model to run, because PopTorch must reserve a power of 2 or maximum of 64 IPUs per process\. Please "
        r"reconfigure your model to use a different number of IPUs or set poptorch\.Options\(\)\.autoRoundNumIPUs\(True"
        r"\)\.",
    ),
    "small machine": (
        Mlp,
        None,
        lambda o: o.replicationFactor(2).Abele.system("bow-2000"),
        "the model needs 8 IPUs, and bow-2000 has 4[^$]*2 replicas, of 4 IPUs each",
    ),
}


@pytest.mark.parametrize("name", MISPLACED)
def test_placement__that_cannot_be__is_refused_with_the_names_of_blocks(name: str) -> None:
    kind, strategy, edit, text = MISPLACED[name]
    run = Run(accumulation=5)
    opts = run.options(None if strategy is None else strategy())
    if edit is not None:
        edit(opts)
    x, labels = classified(run.samples * opts.replication_factor, 8)
    with pytest.raises((poptorch.Error, AssertionError), match=text):
        poptorch.trainingModel(kind(), opts)(x, labels)


def test_block__that_begins_in_the_body_of_a_loop__is_refused() -> None:
    def body(v: torch.Tensor) -> list[torch.Tensor]:
        with poptorch.Block("inner", ipu_id=1):
            return [v * 2]

    def run(x: torch.Tensor) -> torch.Tensor:
        with poptorch.Block("outer", ipu_id=0):
            return poptorch.for_loop(3, body, [x + 1])[0]

    model = poptorch.inferenceModel(run, strategy_options(iterations=2))
    with pytest.raises(
        poptorch.Error, match="block 'inner' begins in the body of a loop or branch, which is in block 'o"
    ):
        model(X)


# --- any order --------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from([None, "a", "b", 0, 1, "0"])
IPUS = st.sampled_from([None, 0, 1, 2])
STEPS = st.recursive(
    st.tuples(st.sampled_from(["compute", "start", "layer", "function", "number", "host"]), NAMES, IPUS),
    lambda inner: st.tuples(st.just("context"), NAMES, IPUS, st.lists(inner, max_size=3)),
    max_leaves=8,
)
ORDERS: dict[str, Any] = {
    "pipelined": lambda: None,
    "by block": lambda: poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement),
    "listed": lambda: poptorch.PipelinedExecution(poptorch.Stage("a", "b"), 0, 1),
    "sharded": poptorch.ShardedExecution,
    "sharded by block": lambda: poptorch.ShardedExecution(poptorch.AutoStage.AutoIncrement),
    "serial": lambda: poptorch.SerialPhasedExecution("a", poptorch.Phase("b", 0), 1),
    "parallel": lambda: poptorch.ParallelPhasedExecution("a", "b"),
}


class Ordered(nn.Module):
    """Steps of blocks and of what is computed, nested as they are given."""

    def __init__(self, steps: list[Any]) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        poptorch.Block.useAutoId()
        return self._run(x, self.steps)

    def _run(self, x: torch.Tensor, steps: list[Any]) -> torch.Tensor:
        for number, (kind, name, ipu, *inner) in enumerate(steps):
            match kind:
                case "compute":
                    x = x * (number + 2) + x.flip(0)
                case "start":
                    poptorch.Block.start(name, ipu)
                case "layer":
                    x = poptorch.BeginBlock(nn.Tanh(), name, ipu_id=ipu)(x)
                case "function":
                    x = poptorch.BlockFunction(name, ipu)(torch.sin)(x)
                case "number":
                    x = x[:, None].sum(1) + torch.arange(x.shape[-1])
                case "host":
                    x = x.reshape(x.shape)
                case "context":
                    with poptorch.Block(name, ipu):
                        x = self._run(x, inner[0])
        return x


def check_order(steps: list[Any], strategy: str, shape: tuple[int, ...], iterations: int) -> None:
    """A model is computed as PyTorch does, with its ops on the IPUs that there are; or refused in words of the user."""
    model, opts = Ordered(steps), poptorch.Options().deviceIterations(iterations).autoRoundNumIPUs(True)
    if ORDERS[strategy]() is not None:
        opts.setExecutionStrategy(ORDERS[strategy]())
    placing = Placing(opts, training=False)
    x = torch.linspace(-1, 1, math.prod(shape)).reshape(shape)
    refusal: Exception | None = None
    try:
        captured = capture(model, (x,), training=False, places=placing.places)
        placing.settings(opts.settings("Ordered"))
        with placing.explaining():
            AssignStages().run(captured.net)
    except (poptorch.Error, AssertionError) as error:
        refusal = error
    if refusal is not None:
        assert isinstance(refusal, AbeleError)
        assert re.search(r"[Bb]lock|pipeline stages", str(refusal))
        assert not refusal.at or "test_strategies.py" in refusal.at
        assert refusal.at or re.search("pipeline stages|lists|Unknown block", str(refusal))
        return
    (output,) = captured.net.outputs
    (value,) = captured.net.inputs
    found = evaluate(captured.net, {value: x.numpy()})[output]
    torch.testing.assert_close(torch.as_tensor(found).float(), model(x).detach(), rtol=1e-4, atol=1e-5)


CASES = (
    st.lists(STEPS, min_size=1, max_size=6),
    st.sampled_from(list(ORDERS)),
    st.sampled_from([(2,), (2, 3), (2, 1, 3)]),
    st.sampled_from([1, 9]),
)


@examples(8)
@given(*CASES)
def test_blocks__in_any_order__compute_what_pytorch_does_or_are_refused(
    steps: list[Any], strategy: str, shape: tuple[int, ...], iterations: int
) -> None:
    check_order(steps, strategy, shape, iterations)


@pytest.mark.slow
@settings(max_examples=sweeps.rounds(1000, 100))
@given(*CASES)
def test_blocks__in_many_orders__compute_what_pytorch_does_or_are_refused(
    steps: list[Any], strategy: str, shape: tuple[int, ...], iterations: int
) -> None:
    check_order(steps, strategy, shape, iterations)


REFUSED = {
    "stage": (lambda: poptorch.Stage(1.0), "the name of a block is text or a whole number from 0 on, got 1.0"),
    "ipu": (lambda: poptorch.Stage("a").ipu("0"), "an IPU is a whole number"),
    "ipu below zero": (lambda: poptorch.Stage("a").ipu(-1), "an IPU is a whole number from 0 on, got -1"),
    "block below zero": (lambda: poptorch.Block("a", -1), "the IPU of a block is a whole number from 0 on"),
    "twice": (lambda: poptorch.PipelinedExecution("a", "a"), "a has already been assigned"),
    "phase": (lambda: poptorch.SerialPhasedExecution("a").phase(1), "phase 1 does not exist"),
    "ipus": (lambda: poptorch.Phase("a").ipus(0, 1), "Phase contains 1 stages but you provided 2 ipus"),
    "mixed": (lambda: poptorch.Phase("a", poptorch.Stage("b")), "either stages or names of blocks"),
    "strategy": (lambda: poptorch.Options().setExecutionStrategy("pipelined"), "takes an execution strategy"),
    "liveness": (lambda: poptorch.SerialPhasedExecution("a").setTensorsLiveness(1), "takes a poptorch.Liveness"),
    "block": (lambda: poptorch.Block(-3), "the name of a block is text or a whole number from 0 on, got -3"),
    "truth": (lambda: poptorch.Block.start(True), "the name of a block is text or a whole number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_strategies__of_something_else__are_refused(name: str) -> None:
    make, text = REFUSED[name]
    with pytest.raises(AssertionError, match=text):
        make()


def test_strategy__of_frozen_options__does_not_change() -> None:
    strategy = poptorch.SerialPhasedExecution("a")
    opts = poptorch.Options().setExecutionStrategy(strategy)
    opts._freeze()
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        strategy.useSeparateBackwardPhase()
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        opts.setExecutionStrategy(poptorch.ShardedExecution())


def test_begin_block__twice_or_of_no_module__is_refused() -> None:
    layer = poptorch.BeginBlock(nn.Linear(2, 2), "a")
    with pytest.raises(poptorch.Error, match=r"'poptorch_py_error': module has already been assigned to a block\."):
        poptorch.BeginBlock(layer, "b")
    with pytest.raises(poptorch.Error, match=r"module is not an instance of torch\.nn\.Module or function\."):
        poptorch.BeginBlock(3)
    poptorch.removeBlocks(nn.Sequential(layer))
    assert "BeginBlock" not in repr(poptorch.BeginBlock(copy.deepcopy(layer), "b")).split(": ")[0]


def test_module_repr__of_a_model_with_blocks__shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(poptorch.BeginBlock(nn.Linear(2, 2), user_id="a", ipu_id=1), nn.ReLU())
    text = poptorch.module_repr(model)
    assert "(0): Linear(in_features=2, out_features=2, bias=True): BeginBlock(user_id=a, ipu_id=1)" in text
    assert repr(model) == text
    poptorch.print(model, 1)
    assert capsys.readouterr().out == f"{text} 1\n"
    assert poptorch.module_repr(nn.ReLU()) == "ReLU()"


def test_block_function__and_start__begin_blocks() -> None:
    @poptorch.BlockFunction("a", ipu_id=0)
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def run(x: torch.Tensor) -> torch.Tensor:
        x = doubled(x)
        poptorch.Block.start("b", ipu_id=1)
        return x + 1

    with pytest.raises(poptorch.Error, match=r"number of pipeline stages \(2\)"):
        poptorch.inferenceModel(run, strategy_options())(X)
    assert torch.equal(poptorch.inferenceModel(run, strategy_options(iterations=2))(X), X * 2 + 1)


def _added(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@poptorch.BlockFunction(3, ipu_id=1)
def _decorated(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class Numbered(nn.Module):
    """Blocks with numbers for names, begun by layers, by functions and by a method."""

    def __init__(self) -> None:
        super().__init__()
        self.a = poptorch.BeginBlock(nn.Linear(3, 3), 1, 0)
        self.b = poptorch.BeginBlock(nn.Linear(3, 3), user_id=2, ipu_id=0)
        self.c = poptorch.BeginBlock(nn.Linear(3, 3), ipu_id=1)
        self.added = poptorch.BeginBlock(_added, 5, 1)

    @poptorch.BlockFunction(0, ipu_id=0)
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        poptorch.Block.start(user_id=7, ipu_id=0)
        return _decorated(self.added(self.c(self.b(self.a(x * 2)))))


def _saved(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded: nn.Module = torch.load(file, weights_only=False)
    return loaded


@pytest.mark.parametrize(
    "copied", [lambda m: m, copy.copy, copy.deepcopy, _saved], ids=["", "copy", "deepcopy", "save"]
)
def test_blocks__named_by_numbers__are_those_of_the_model_and_of_its_copies(copied: Any) -> None:
    model = Numbered()
    text = repr(model)
    made = copied(model)
    assert repr(made) == text
    assert "(b): Linear(in_features=3, out_features=3, bias=True): BeginBlock(user_id=2, ipu_id=0)" in text
    stages = poptorch.PipelinedExecution(poptorch.Stage(0, 7, "1", 2).ipu(0), poptorch.Stage(4, 5, 3).ipu(1))
    assert stages.stage(1) is stages.stage("7")
    wrapped = poptorch.inferenceModel(made, strategy_options(stages, iterations=2))
    torch.testing.assert_close(wrapped(X), model(X).detach())
    assert {str(op.place) for op in wrapped._compiled.captured.net.ops} == {"@ipu0", "@ipu1:stage1"}
    poptorch.removeBlocks(made)
    assert "BeginBlock" not in repr(made)


def test_functions_that_begin_blocks__are_saved_and_copied_with_what_they_call() -> None:
    class Held:
        def __init__(self) -> None:
            self.function = poptorch.BeginBlock(self.own, "own")

        def own(self) -> object:
            return self

    assert pickle.loads(pickle.dumps(_decorated)) is _decorated
    assert pickle.loads(pickle.dumps(poptorch.BeginBlock(_added, 1)))(X).equal(X + 1)
    held = copy.deepcopy(Held())
    assert held.function() is held
    assert inspect.signature(_decorated) == inspect.signature(_added)


def test_blocks__without_names__are_numbered() -> None:
    poptorch.Block.useAutoId()
    assert [poptorch.Block()._user_id for _ in range(3)] == ["0", "1", "2"]


def test_name_scope__around_operations__is_in_their_names() -> None:
    def scoped(x: torch.Tensor) -> torch.Tensor:
        with poptorch.NameScope("outer"), poptorch.NameScope("inner"), poptorch.Attribute(__outline={"layer": "0"}):
            return torch.relu(x)

    model = poptorch.inferenceModel(scoped, options())
    model(X)
    assert any("outer/inner" in line for line in model.executable.listing().splitlines())
    with pytest.raises(AssertionError, match="Parameter to NameScope must be a string"):
        poptorch.NameScope(1)
    with pytest.raises(AssertionError, match="the attribute __outline is a dictionary of text"):
        poptorch.Attribute(__outline="0")
