"""Blocks on the IPUs that strategies put them on: models compute and learn what PyTorch's do."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from placement_kit import (
    Bert,
    Cnn,
    Mlp,
    Run,
    check_trained,
    classified,
    same_weights,
    sentences,
    trained,
    trained_eagerly,
)
from torch import nn
from torch.utils.checkpoint import checkpoint

from abele import poptorch
from abele.frontends.poptorch.capture import capture
from abele.frontends.poptorch.models.compiling import Placing
from abele.network import Group, Network, Schedule, Sgd, training_pipeline

RUN = Run()
LOSS = nn.functional.cross_entropy


def network(wrapped: Any) -> Network:
    """Captured network of a wrapped model."""
    return wrapped._compiled.captured.net


def places(wrapped: Any) -> set[str]:
    """The places of its ops."""
    return {str(op.place) for op in network(wrapped).ops}


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return poptorch.optim.SGD(parameters, lr=0.1, momentum=0.9)


# --- strategies -------------------------------------------------------------------------------------------------------

STRATEGIES: dict[str, tuple[Callable[[], Any], list[int | None], set[str]]] = {
    "pipeline by IPU": (lambda: None, [0, 1, 2], {"@ipu0", "@ipu1:stage1", "@ipu2:stage2"}),
    "pipeline by block": (
        lambda: poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement),
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
    "one IPU that is said": (lambda: None, [None, 1, None], {"@ipu0", "@ipu1:stage1"}),
    "sharded there and back": (poptorch.ShardedExecution, [0, 1, 0], {"@ipu0", "@ipu1"}),
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
    "parallel phases": (
        lambda: poptorch.ParallelPhasedExecution("layer0", "layer1", "layer2"),
        [None] * 3,
        {"@ipu0", "@ipu1:phase1", "@phase2"},
    ),
}


@pytest.mark.parametrize(
    "name",
    # Those that are slow train with operations before their blocks, or in phases, in every run.
    [pytest.param(n, marks=[pytest.mark.slow] * (n in ("sharded by name", "parallel phases"))) for n in STRATEGIES],
)
def test_training__by_each_strategy__learns_what_pytorch_does(name: str) -> None:
    strategy, ipus, expected = STRATEGIES[name]
    wrapped = check_trained(Mlp(ipus=ipus), RUN, strategy(), classified(RUN.samples, 8))
    assert places(wrapped) == expected


def test_stage_of_a_strategy__that_is_put_on_an_ipu__is_there() -> None:
    strategy = poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement)
    strategy.stage("layer1").ipu(3)
    wrapped = check_trained(Mlp(ipus=[0, None, 1]), RUN, strategy, classified(RUN.samples, 8))
    assert places(wrapped) == {"@ipu0", "@ipu3:stage1", "@ipu1:stage2"}


def test_batch_norm__in_stages__keeps_running_statistics() -> None:
    check_trained(Cnn(), RUN, None, classified(RUN.samples, 3, 6, 6))


class Tied(nn.Module):
    """Embeddings whose table gives the scores two stages later."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.middle, self.scores = nn.Embedding(10, 8), nn.Linear(8, 8), nn.Linear(8, 10)
        self.scores.weight = self.words.weight

    def forward(self, words: torch.Tensor, labels: torch.Tensor) -> Any:
        with poptorch.Block("words", ipu_id=0):
            x = self.words(words)
        with poptorch.Block("middle", ipu_id=1):
            x = torch.tanh(self.middle(x))
        with poptorch.Block("scores", ipu_id=2):
            return LOSS(self.scores(x), labels)


def test_tied_embeddings__on_two_ipus_of_two_replicas__sum_their_gradients() -> None:
    run = Run(accumulation=5, size=2, replicas=2)
    words, labels = torch.randint(0, 10, (2, run.samples), generator=torch.Generator().manual_seed(1))
    check_trained(Tied(), run, None, (words, labels))


@pytest.mark.parametrize("rounds", [3, 7])
def test_inference__over_stages__gives_each_micro_batch_its_result(rounds: int) -> None:
    model = Mlp().eval()
    opts = poptorch.Options().deviceIterations(rounds).autoRoundNumIPUs()
    wrapped = poptorch.inferenceModel(model, opts)
    x, _ = classified(4 * rounds, 8)
    for given in (x, x + 1):
        torch.testing.assert_close(wrapped(given), model(given).detach())


MODES = {
    poptorch.OutputMode.Final: lambda y: y[-2:],
    poptorch.OutputMode.EveryN: lambda y: torch.cat([y[2:4], y[6:8], y[10:12]]),
    poptorch.OutputMode.Sum: lambda y: sum(y.split(2)),
}


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_output_modes__of_a_pipeline__return_what_they_name(mode: poptorch.OutputMode) -> None:
    model = Mlp().eval()
    opts = poptorch.Options().deviceIterations(6).autoRoundNumIPUs().outputMode(mode, 2)
    x, _ = classified(12, 8)
    torch.testing.assert_close(poptorch.inferenceModel(model, opts)(x), MODES[mode](model(x)).detach())


# --- what is in blocks ------------------------------------------------------------------------------------------------


class Parts(nn.Module):
    """Three layers, for models that go through them in ways of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)


class AcrossACheckpoint(Parts):
    """A checkpoint that goes through two blocks; the second goes on after it."""

    def _checked(self, x: torch.Tensor) -> torch.Tensor:
        with poptorch.Block("a", ipu_id=0):
            x = torch.tanh(self.a(x))
        poptorch.Block.start("b", ipu_id=1)
        return torch.tanh(self.b(x)) * 2

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        x = checkpoint(self._checked, x, use_reentrant=False) + 1
        poptorch.Block.start("c", ipu_id=2)
        return LOSS(self.c(x), labels)


class Cube(torch.autograd.Function):
    """A function with a gradient of its own, unlike that of its value."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 3 * ctx.saved_tensors[0]


class OwnGradients(Parts):
    """Calls of it in two blocks."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        poptorch.Block.start(ipu_id=0)
        x = Cube.apply(self.a(x))
        poptorch.Block.start(ipu_id=1)
        return LOSS(self.c(Cube.apply(torch.tanh(self.b(x)))), labels)


class Branching(Parts):
    """A branch, and a detached value, in the second of three blocks."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        with poptorch.Block("a", ipu_id=0):
            x = torch.tanh(self.a(x))
        with poptorch.Block("b", ipu_id=1):
            if poptorch.isRunningOnIpu():
                x = torch.cond(x.sum() > 0, lambda v: torch.tanh(self.b(v)), lambda v: v * 2, (x,))
            else:
                x = torch.tanh(self.b(x)) if x.sum() > 0 else x * 2
            with torch.no_grad():
                shift = x.mean()
            x = x - shift
        with poptorch.Block("c", ipu_id=2):
            return LOSS(self.c(x), labels)


class Functions(Parts):
    """A function that begins a block, and one nested in another block."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        @poptorch.BlockFunction("a", ipu_id=0)
        def first(x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.a(x))

        second = poptorch.BeginBlock(lambda x: torch.tanh(self.b(x)), "b", ipu_id=1)
        with poptorch.Block("c", ipu_id=2):
            with poptorch.Block("outer", ipu_id=0):
                x = second(first(x))
            return LOSS(self.c(x), labels)


@pytest.mark.parametrize("kind", [AcrossACheckpoint, OwnGradients, Branching, Functions])
def test_blocks__of_models_with_more_than_layers__are_where_they_are_put(kind: type[Parts]) -> None:
    wrapped = check_trained(kind(), RUN, None, classified(RUN.samples, 8))
    assert network(wrapped).num_stages == (2 if kind is OwnGradients else 3)


def test_loop_and_branch__in_a_stage_of_inference__run_there() -> None:
    layer = nn.Linear(8, 8)

    def run(x: torch.Tensor) -> torch.Tensor:
        with poptorch.Block("a", ipu_id=0):
            x = layer(x)
        with poptorch.Block("b", ipu_id=1):
            (x,) = poptorch.for_loop(3, lambda v: [v * 2 + 1], [x])
            return poptorch.cond(x.sum() > 0, lambda v: [v + 1], [x], lambda v: [v - 1], [x])[0]

    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    grown = (layer(x) * 8 + 7).detach()
    expected = torch.cat([part + (1 if part.sum() > 0 else -1) for part in grown.split(2)])
    torch.testing.assert_close(poptorch.inferenceModel(run, poptorch.Options().deviceIterations(3))(x), expected)


NORMS_OF_NEARLY_EQUAL = {"rtol": 2e-4, "atol": 2e-5}
"""Tolerances where norms divide by small deviations, which makes roundings of their operands ten times as large."""


class Equal(nn.Module):
    """Equal layers, each on the IPU that is said."""

    def __init__(self, ipus: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(self._layer() for _ in ipus)
        for layer, ipu in zip(self.layers, ipus, strict=True):
            poptorch.BeginBlock(layer, ipu_id=ipu)

    @staticmethod
    def _layer() -> nn.Module:
        """Operators enough for a function, and not the same ones twice."""
        first = nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 16), nn.Tanh()
        return nn.Sequential(*first, nn.Linear(16, 8), nn.Sigmoid(), nn.LayerNorm(8), nn.SiLU())

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        return LOSS(x, labels)


def test_equal_layers__on_ipus_of_their_own__are_calls_of_one_function() -> None:
    run, texts = Run(accumulation=5), {}
    placing = Placing(run.options(), training=True)
    net = capture(Equal([0, 1, 1, 2]), classified(run.size, 8), training=True, places=placing.places).net
    training_pipeline(Schedule(1, run.accumulation), [Group(Sgd(lr=0.1), net.parameters)]).run(
        net, watch=lambda number, step, after: texts.setdefault(step, str(after))
    )
    calls = [line.split("call")[0] for line in texts["outline"].splitlines() if "= call(" in line]
    assert sum("@ipu1" in line for line in calls) == 2
    assert len(calls) == 4


@pytest.mark.parametrize("strategy", [None, poptorch.ShardedExecution()], ids=["pipelined", "sharded"])
def test_shared_functions__of_layers_on_two_ipus__are_one_on_each(strategy: Any) -> None:
    run = Run(accumulation=3, size=2, calls=1)
    wrapped = check_trained(
        Equal([0, 0, 1, 1]),
        run,
        strategy,
        classified(run.samples, 8),
        edit=lambda opts: opts.Abele.sharedFunctions(),
        **NORMS_OF_NEARLY_EQUAL,
    )
    assert places(wrapped) == {"@ipu0", "@ipu1:stage1" if strategy is None else "@ipu1"}


def test_remove_blocks__of_a_model__leaves_it_on_one_ipu() -> None:
    model = Cnn()
    poptorch.removeBlocks(model)
    run = Run(accumulation=1)
    wrapped = check_trained(model, run, None, classified(run.samples, 3, 6, 6))
    assert places(wrapped) == {"@ipu0"}


# --- before the first block -------------------------------------------------------------------------------------------


class Leading(Parts):
    """Operations before the first block, which begins in one of several ways."""

    def __init__(self, form: str, ipu: int) -> None:
        super().__init__()
        self.form, self.ipu = form, ipu
        if form == "layers":
            poptorch.BeginBlock(self.b, "0", ipu)
            poptorch.BeginBlock(self.c, "1", ipu + 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        x = torch.tanh(self.a(x[:, None] * 2))
        if self.form == "contexts":
            poptorch.Block.useAutoId()
            with poptorch.Block(ipu_id=self.ipu):
                x = self.b(x)
            with poptorch.Block(ipu_id=self.ipu + 1):
                return self._end(x, labels)
        if self.form == "started":
            poptorch.Block.start(0, self.ipu)
            x = self.b(x)
            poptorch.Block.start(1, self.ipu + 1)
            return self._end(x, labels)
        if self.form == "functions":
            x = poptorch.BlockFunction("0", self.ipu)(lambda v: self.b(v))(x)
            return poptorch.BeginBlock(self._end, "1", self.ipu + 1)(x, labels)
        return self._end(self.b(x), labels)

    def _end(self, x: torch.Tensor, labels: torch.Tensor | None) -> Any:
        scores = self.c(torch.tanh(x))[:, 0]
        return scores if labels is None else LOSS(scores, labels)


FORMS = ["contexts", "started", "layers", "functions"]
LEADING: dict[str, tuple[Callable[[], Any], int, set[str]]] = {
    "pipeline": (lambda: None, 1, {"@ipu0", "@ipu1:stage1", "@ipu2:stage2"}),
    "pipeline on IPU 0": (lambda: None, 0, {"@ipu0", "@ipu1:stage1"}),
    "pipeline by block": (
        lambda: poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement),
        2,
        {"@ipu0", "@ipu2:stage1", "@ipu3:stage2"},
    ),
    "pipeline by block on IPU 0": (
        lambda: poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement),
        0,
        {"@ipu0", "@ipu1:stage1"},
    ),
    "listed": (lambda: poptorch.PipelinedExecution(0, 1), 0, {"@ipu0", "@ipu1:stage1"}),
    "sharded": (poptorch.ShardedExecution, 1, {"@ipu0", "@ipu1", "@ipu2"}),
    "sharded by name": (lambda: poptorch.ShardedExecution("0", "1"), 1, {"@ipu0", "@ipu1", "@ipu2"}),
    "serial phases": (lambda: poptorch.SerialPhasedExecution("0", "1"), 1, {"@ipu0", "@ipu1", "@ipu2:phase1"}),
    "parallel phases": (lambda: poptorch.ParallelPhasedExecution("0", "1"), 0, {"@ipu0", "@ipu1:phase1"}),
}


@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param(
            name,
            FORMS[n % 4],
            marks=[pytest.mark.slow] * (name not in ("pipeline", "sharded by name", "parallel phases")),
        )
        for n, name in enumerate(LEADING)
    ],
)
def test_operations__before_the_first_block__are_on_ipu_0_in_training(name: str, form: str) -> None:
    strategy, ipu, expected = LEADING[name]
    run = Run(accumulation=5, calls=1)
    wrapped = check_trained(Leading(form, ipu), run, strategy(), classified(run.samples, 8))
    assert places(wrapped) == expected


@pytest.mark.parametrize(("name", "form"), [(name, FORMS[-n % 4]) for n, name in enumerate(LEADING)])
def test_operations__before_the_first_block__are_on_ipu_0_in_inference(name: str, form: str) -> None:
    strategy, ipu, expected = LEADING[name]
    model = Leading(form, ipu).eval()
    wrapped = poptorch.inferenceModel(model, Run(3, 1).options(strategy()))
    x, _ = classified(6, 8)
    torch.testing.assert_close(wrapped(x), model(x).detach())
    assert places(wrapped) == expected


def test_layer_of_a_sequential__that_begins_a_block_on_ipu_1__leaves_those_before_on_ipu_0() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    model[2] = poptorch.BeginBlock(model[2], ipu_id=1)
    x, _ = classified(6, 8)
    with pytest.raises(poptorch.Error, match=r"number of pipeline stages \(2\)"):
        poptorch.inferenceModel(model)(x)
    wrapped = poptorch.inferenceModel(model, Run(2, 1).options())
    torch.testing.assert_close(wrapped(x), model(x).detach())


def test_loop_and_checkpoint__before_the_first_block__are_in_the_first_stage() -> None:
    class Looped(Leading):
        def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
            if labels is None:
                (x,) = poptorch.for_loop(2, lambda v: [v * 1.5], [x])
            else:
                x = checkpoint(lambda v: torch.tanh(v * 2), x, use_reentrant=False)
            return super().forward(x, labels)

    run = Run(accumulation=5, calls=1)
    check_trained(Looped("started", 1), run, None, classified(run.samples, 8))
    model, (x, _) = Looped("contexts", 1), classified(6, 8)
    wrapped = poptorch.inferenceModel(model, Run(3, 1).options())
    torch.testing.assert_close(wrapped(x), Leading.forward(model, x * 1.5**2).detach())


# --- recomputation ----------------------------------------------------------------------------------------------------


class Checkpointed(Parts):
    """A marked checkpoint between two non-linearities of a stage."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        with poptorch.Block("a", ipu_id=0):
            x = torch.sigmoid(poptorch.recomputationCheckpoint(torch.tanh(self.a(x))))
        with poptorch.Block("c", ipu_id=1):
            return LOSS(self.c(x), labels)


@pytest.mark.parametrize(
    ("kind", "again"),
    [(None, 1), (0, 0), (3, 1), pytest.param(1, 0, marks=pytest.mark.slow), pytest.param(4, 1, marks=pytest.mark.slow)],
)
def test_recomputation__of_each_kind__changes_no_result(kind: int | None, again: int, tmp_path: Path) -> None:
    def edit(opts: poptorch.Options) -> None:
        opts.Abele.dumpPasses(str(tmp_path))
        if kind is not None:
            opts._Popart.set("autoRecomputation", kind)

    check_trained(Checkpointed(), RUN, None, classified(RUN.samples, 8), edit=edit)
    final = max(tmp_path.glob("*/*.net")).read_text()
    # What follows the checkpoint is computed again, from what it keeps.
    forward = [line for line in final.splitlines() if "= nonlinearity(" in line]
    assert sum("function=sigmoid" in line for line in forward) == 1 + again


def test_recomputation__of_no_kind_that_there_is__is_refused() -> None:
    opts = RUN.options()
    opts._Popart.set("autoRecomputation", 9)
    with pytest.raises(AssertionError, match=r"autoRecomputation is a .* from 0 to 4, got 9"):
        poptorch.trainingModel(Mlp(), opts)(*classified(RUN.samples, 8))


# --- 8-bit stashes ---------------------------------------------------------------------------------------------------


def check_stashes(model: nn.Module, run: Run, data: Any, expected: torch.Tensor, format: str, scale: int) -> None:
    """Train a model whose stashes are 8-bit floats, and hold its losses against those of float32."""
    opts = run.options()
    opts.Abele.stash(format, scale)
    losses, wrapped = trained(model, run, opts, poptorch.optim.AdamW(model.parameters(), lr=2e-3), data)
    found = losses.mean(1)
    assert found[-1] < 0.9 * found[0]
    assert (found - expected).abs().max() < 0.01
    # The first update saw the weights that the others see.
    assert found[0] == pytest.approx(float(expected[0]), rel=1e-5)
    names = {v.dtype.name for v in wrapped.executable.graph.variables if v.name.endswith("ring")}
    assert any(name.startswith(f"f8_{format[1:]}") for name in names)


@pytest.mark.parametrize(("format", "scale"), [("F143", -4), pytest.param("F152", 0, marks=pytest.mark.slow)])
def test_stash__of_8_bit_floats__follows_pytorch_in_float32(format: str, scale: int) -> None:
    run = Run(accumulation=5, size=2, calls=20)
    torch.manual_seed(0)
    model = Mlp(width=32)
    oracle, data = copy.deepcopy(model), classified(run.samples, 32)
    poptorch.removeBlocks(oracle)
    expected = trained_eagerly(oracle, run, torch.optim.AdamW(oracle.parameters(), lr=2e-3), data).mean(1)
    check_stashes(model, run, data, expected, format, scale)


@pytest.mark.slow
@pytest.mark.parametrize(("format", "scale"), [("F143", 0), ("F143", -4), ("F152", 0)])
def test_stash__of_8_bit_floats_in_bert__follows_pytorch_in_float32(format: str, scale: int) -> None:
    run = Run(accumulation=7, size=2, calls=20)
    torch.manual_seed(0)
    model = Bert(width=32, layers=4, blocks=[0, 0, 1, 2, 3, 3])
    oracle, data = copy.deepcopy(model), sentences(run.samples, 6, 50)
    poptorch.removeBlocks(oracle)
    expected = trained_whole(oracle, run, torch.optim.AdamW(oracle.parameters(), lr=2e-3), data).mean(1)
    check_stashes(model, run, data, expected, format, scale)


@pytest.mark.parametrize(("format", "scale"), [("F134", 0), ("F143", 32), ("F143", 0.5)])
def test_stash__of_no_format_that_there_is__is_refused(format: str, scale: Any) -> None:
    with pytest.raises(ValueError, match=r"option .stash_"):
        poptorch.Options().Abele.stash(format, scale)


# --- optimisers, and what one IPU does --------------------------------------------------------------------------------


def one_ipu() -> Any:
    """All of an :class:`Mlp` of two layers on one IPU."""
    return poptorch.ShardedExecution(poptorch.Stage("layer0", "layer1").ipu(0))


class Dropping(Mlp):
    """With dropout in every block, also in evaluation mode."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        for number, (layer, ipu) in enumerate(zip(self.layers, self.ipus, strict=True)):
            poptorch.Block.start(f"layer{number}", ipu_id=ipu)
            x = nn.functional.dropout(layer(x), 0.3, training=True)
        assert labels is not None
        return x, LOSS(x, labels)


STRATEGIES_OF_SEVERAL: dict[str, Callable[[], Any]] = {"pipelined": lambda: None, "sharded": poptorch.ShardedExecution}


def same_on_one_ipu(
    model: nn.Module,
    make: Any,
    strategies: Iterable[str] = STRATEGIES_OF_SEVERAL,
    *,
    dtype: torch.dtype = torch.float32,
    edit: Any = None,
) -> None:
    """Hold a model on several IPUs, by each strategy, against the same on one."""
    x, labels = classified(RUN.samples, 8)

    def run(strategy: Any) -> tuple[torch.Tensor, nn.Module]:
        made = copy.deepcopy(model)
        opts = RUN.options(strategy).randomSeed(5)
        if edit is not None:
            edit(opts)
        return trained(made, RUN, opts, make(made.parameters()), (x.to(dtype), labels))[0], made

    expected, alone = run(one_ipu())
    for name in strategies:
        losses, made = run(STRATEGIES_OF_SEVERAL[name]())
        torch.testing.assert_close(losses, expected, rtol=2e-5, atol=2e-6, msg=lambda m, n=name: f"{n}: {m}")
        same_weights(made, alone)


OPTIMISERS: dict[str, Callable[..., Any]] = {
    "clipped": lambda p: poptorch.optim.Adam(p, lr=0.01, max_grad_norm=0.05),
    "lamb": lambda p: poptorch.optim.LAMB(p, lr=0.01),
    "scaled": lambda p: poptorch.optim.SGD(p, lr=0.1, loss_scaling=8.0),
    "combined": lambda p: poptorch.optim.SGD(
        p, lr=0.1, momentum=0.5, weight_decay=0.1, use_combined_accum=True, velocity_scaling=4.0, loss_scaling=8.0
    ),
    "rmsprop": lambda p: poptorch.optim.RMSprop(p, lr=0.01, momentum=0.5),
}
IN_TURN = list(zip(OPTIMISERS, itertools.cycle(STRATEGIES_OF_SEVERAL)))
"""Each optimiser with one of the strategies; whole products are slow tests."""


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        pytest.param(*pair, marks=[] if pair in IN_TURN else [pytest.mark.slow])
        for pair in itertools.product(OPTIMISERS, STRATEGIES_OF_SEVERAL)
    ],
)
def test_optimisers__over_ipus__do_what_they_do_on_one(name: str, strategy: str) -> None:
    same_on_one_ipu(Mlp(layers=2), OPTIMISERS[name], [strategy])


def test_dropout__over_ipus__draws_what_one_draws() -> None:
    same_on_one_ipu(Dropping(layers=2), sgd)


def test_automatic_loss_scale__over_ipus__moves_as_on_one() -> None:
    def edit(opts: poptorch.Options) -> None:
        opts.Training.setAutomaticLossScaling(True)

    def make(p: Any) -> torch.optim.Optimizer:
        return poptorch.optim.SGD(p, lr=0.01, accum_type=torch.float16)

    same_on_one_ipu(Mlp(layers=2).half(), make, dtype=torch.float16, edit=edit)


def test_running_mean__over_ipus__is_that_of_one() -> None:
    def edit(opts: poptorch.Options) -> None:
        opts.Training.setMeanAccumulationAndReplicationReductionStrategy(poptorch.MeanReductionStrategy.Running)

    same_on_one_ipu(Mlp(layers=2), sgd, edit=edit)


# --- state, files, anchors --------------------------------------------------------------------------------------------


def adam_model(edit: Callable[[Any], Any] = lambda opts: None) -> tuple[Any, torch.optim.Optimizer]:
    model = Mlp()
    opts = RUN.options()
    edit(opts)
    optimiser = poptorch.optim.Adam(model.parameters(), lr=0.01)
    return poptorch.trainingModel(model, opts, optimiser), optimiser


def test_state__of_optimiser_and_weights_on_ipus__goes_to_the_host_and_back() -> None:
    wrapped, optimiser = adam_model()
    data = classified(RUN.samples, 8)
    wrapped(*data)
    state, weights = copy.deepcopy(optimiser.state_dict()), copy.deepcopy(wrapped.state_dict())
    assert {f"Accl{m}___layers.{n}.weight" for m in (1, 2) for n in range(3)} <= set(state["ipu_state"])
    after = wrapped(*data)
    wrapped.load_state_dict(weights)
    optimiser.load_state_dict(state)
    wrapped.setOptimizer(optimiser)
    torch.testing.assert_close(wrapped(*data), after, rtol=0, atol=0)
    optimiser.param_groups[0]["lr"] = 0.5
    wrapped.setOptimizer(optimiser)
    assert not torch.equal(wrapped(*data)[1], after[1])


def test_executable__of_a_pipeline__is_loaded_with_its_places(tmp_path: Path) -> None:
    wrapped, _ = adam_model()
    data = classified(RUN.samples, 8)
    wrapped.compileAndExport(str(tmp_path / "model.poptorch"), *data)
    expected = [wrapped(*data) for _ in range(2)]
    wrapped.destroy()
    loaded = poptorch.load(str(tmp_path / "model.poptorch"))
    for losses in expected:
        torch.testing.assert_close(loaded(*data), losses, rtol=0, atol=0)


def test_cache__of_two_strategies__keeps_both(tmp_path: Path) -> None:
    data = classified(RUN.samples, 8)
    start, results = Mlp(layers=2), []
    for strategy in (None, None, poptorch.ShardedExecution()):
        model = copy.deepcopy(start)
        opts = RUN.options(strategy).enableExecutableCaching(str(tmp_path))
        results.append(poptorch.trainingModel(model, opts, sgd(model.parameters()))(*data)[1])
    assert len(list(tmp_path.iterdir())) == 2
    assert torch.equal(results[0], results[1])
    torch.testing.assert_close(results[2], results[0])


def test_anchors__of_several_stages__come_back() -> None:
    def edit(opts: poptorch.Options) -> None:
        opts.anchorTensor("gradient", "Gradient___layers.1.weight")
        opts.anchorTensor("updated", "UpdatedVar___layers.2.bias")

    wrapped, _ = adam_model(edit)
    wrapped(*classified(RUN.samples, 8))
    assert wrapped.getAnchoredTensor("gradient").shape == (8 * RUN.accumulation, 8)
    torch.testing.assert_close(wrapped.getAnchoredTensor("updated"), wrapped.layers[2].bias.detach())
    assert "Gradient___layers.1.weight" in wrapped.getTensorNames()


def test_memory_proportions__by_ipu__are_what_its_products_plan_with() -> None:
    wrapped, _ = adam_model(lambda opts: opts.setAvailableMemoryProportion({"IPU0": 0.3, "IPU2": 0.1}))
    wrapped.compile(*classified(RUN.samples, 8))
    shares = {op.place.ipu: op.hint and op.hint.proportion for op in network(wrapped).ops if op.kind == "linear"}
    assert shares == {0: 0.3, 1: None, 2: 0.1}


# --- machines ---------------------------------------------------------------------------------------------------------


def test_machine__of_replicas_of_a_pipeline__has_an_ipu_for_each_of_their_stages() -> None:
    run = Run(accumulation=5, replicas=2, calls=1)
    wrapped = check_trained(Mlp(), run, None, classified(run.samples, 8))
    target = wrapped.executable.report.target
    assert target["whole_system_num_ipus"] == 8  # Three of four are used.


@pytest.mark.usefixtures("whole_machine")
def test_machine__that_was_not_chosen__is_large_enough() -> None:
    run = Run(accumulation=5, replicas=2, calls=1)
    wrapped = check_trained(Mlp(), run, None, classified(run.samples, 8))
    assert wrapped.executable.report.target["whole_system"].startswith("bow-pod16")


# --- BERT -------------------------------------------------------------------------------------------------------------


def trained_whole(model: Bert, run: Run, optimiser: torch.optim.Optimizer, data: Any) -> torch.Tensor:
    """PyTorch's losses from whole batches: the loss of an update is the mean of those of its micro-batches."""
    tokens, mask, labels = data
    found = []
    for _ in range(run.calls):
        scores = model(tokens, mask)
        every = LOSS(scores.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=-100)
        counts = (labels != -100).reshape(-1, run.size * labels.shape[1]).sum(1)
        losses = every.reshape(len(counts), -1).sum(1) / counts
        losses.mean().backward()
        optimiser.step()
        optimiser.zero_grad()
        found.append(losses.detach())
    return torch.stack(found)


@pytest.mark.slow
def test_bert__on_four_stages_of_two_replicas_that_share_state__has_the_loss_of_pytorch_after_20_updates(
    tmp_path: Path,
) -> None:
    run = Run(accumulation=7, size=1, replicas=2, calls=20)
    torch.manual_seed(0)
    model = Bert(words=1000, width=256, layers=4, heads=4, length=128, blocks=[0, 0, 1, 2, 3, 3])
    oracle = copy.deepcopy(model)
    poptorch.removeBlocks(oracle)
    data = sentences(run.samples, 128, 1000)
    optimiser = poptorch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    opts = run.options(system="bow-pod16")
    opts.Abele.dumpPasses(str(tmp_path))
    opts.TensorLocations.setOptimizerLocation(poptorch.TensorLocationSettings().useReplicatedTensorSharding())
    losses, wrapped = trained(model, run, opts, optimiser, data)
    expected = trained_whole(oracle, run, torch.optim.AdamW(oracle.parameters(), lr=1e-3, weight_decay=0.01), data)
    assert network(wrapped).num_stages == 4
    final = max(tmp_path.glob("*/*.net")).read_text()
    # Backward stages compute layers again, but for the last; of large parameters each replica has half of the state.
    assert final.count("function=@layers.forward") == 4 + 3
    sizes = {v.name: v.size for v in wrapped.executable.graph.variables if v.name.endswith("/moment2")}
    for name, parameter in wrapped.named_parameters():
        (size,) = (size for of, size in sizes.items() if of.endswith(f"/{name}/moment2"))
        assert size == parameter.numel() // (2 if parameter.numel() >= 8192 else 1), name
    torch.testing.assert_close(losses, expected, rtol=0, atol=1e-4)
    assert losses[-1].mean() < 0.8 * losses[0].mean()
