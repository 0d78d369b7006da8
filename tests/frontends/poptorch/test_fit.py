"""``poptorch.fit``: what it finds for PyTorch models, the code that it writes, and what it refuses."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from abele import poptorch
from abele.errors import FittingError, InvalidOptionError, MachineError
from abele.fitting.text import plan_words
from abele.garden.models import known_model
from abele.garden.models.gpt2 import Gpt2
from abele.machine import systems
from abele.poptorch import tensor_parallel


class Classifier(nn.Module):
    """Equal layers below a head, as lists of modules and not."""

    def __init__(self, layers=4, width=64):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(layers)])
        self.head = nn.Linear(width, 10)

    def forward(self, x, labels):
        x = torch.tanh(self.first(x))
        for layer in self.layers:
            x = layer(x)
        return nn.functional.cross_entropy(self.head(x), labels)


FEW_TILES = systems.bow_2000().evolve(ipu={"num_tiles": 64})


def example(batch=8, width=64):
    return torch.zeros(batch, width), torch.zeros(batch, dtype=torch.long)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


@pytest.fixture(scope="module")
def found():
    model = Classifier()
    return poptorch.fit(model, example(), system=FEW_TILES, batch=128, optimizer=sgd(model), micro_batches=[8], check=0)


def of_ipus(found, ipus, recompute):
    return next(r for r in found.ranking if r.plan.ipus == ipus and r.plan.recompute.value == recompute)


def run(code, model):
    names = {"model": model}
    exec(code, names)
    names["opts"].Abele.system(FEW_TILES)  # The code names the machine, which is told by name.
    return names["opts"]


def test_fit__classifier__stages_begin_at_submodules(found):
    plan = of_ipus(found, 4, "segments").plan
    modules = found.fitted.modules(plan)
    assert modules[0] == ""
    assert all(m.startswith(("layers/", "head")) and "/0/" not in m for m in modules[1:])


def test_fit__code_of_a_pipeline__is_options_and_blocks_of_the_model(found):
    ranked = of_ipus(found, 4, "nothing")
    model = Classifier()
    opts = run(found.code(ranked), model)
    assert opts.replication_factor == 1
    assert opts.Training.gradient_accumulation == ranked.plan.accumulation
    blocks = [m for m in model.modules() if "BeginBlock" in poptorch.module_repr(m).splitlines()[-1]]
    assert len(blocks) >= 4
    assert "model.layers[" in found.code(ranked)
    assert 'opts._Popart.set("autoRecomputation", 0)' in found.code(ranked)


def test_fit__code_with_checkpoints__model_computes_the_same(found):
    model = Classifier()
    before = model(*example())
    run(found.code(of_ipus(found, 2, "segments")), model)
    assert torch.equal(model(*example()), before)


def test_fit__code_of_one_ipu__trains(found):
    model = Classifier()
    ranked = next(r for r in found.ranking if r.plan.ipus == 1)
    opts = run(found.code(ranked), model)
    wrapped = poptorch.trainingModel(model, opts, optimizer=sgd(model))
    batch = ranked.plan.batch
    data, labels = torch.randn(batch, 64), torch.zeros(batch, dtype=torch.long)
    losses = [float(wrapped(data, labels).mean()) for _ in range(5)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("ipus", "recompute"), [(2, "segments"), (4, "stages"), pytest.param(4, "nothing", marks=pytest.mark.slow)]
)
def test_fit__code_of_a_pipeline__trains_as_pytorch_does(found, ipus, recompute):
    torch.manual_seed(3)
    model, other = Classifier(), Classifier()
    other.load_state_dict(model.state_dict())
    before = [p.detach().clone() for p in model.parameters()]
    ranked = of_ipus(found, ipus, recompute)
    wrapped = poptorch.trainingModel(model, run(found.code(ranked), model), optimizer=sgd(model))
    optimizer, batch = sgd(other), ranked.plan.batch
    for _ in range(3):
        data, labels = torch.randn(batch, 64), torch.randint(10, (batch,))
        wrapped(data, labels)
        optimizer.zero_grad()
        other(data, labels).backward()
        optimizer.step()
    wrapped.copyWeightsToHost()
    assert not any(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))
    for (name, trained), expected in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.allclose(trained, expected, rtol=1e-3, atol=1e-5), name


def test_fit__code_of_stages_that_take_turns__trains_as_the_grouped_pipeline_does(found):
    grouped = of_ipus(found, 2, "stages").plan
    losses = []
    for plan in (grouped, replace(grouped, turns=True), replace(grouped, turns=True, narrow_stash=True)):
        torch.manual_seed(3)
        model = Classifier()
        opts = run(found.code(plan), model)
        assert opts.Abele.pipeline_schedule == ("interleaved" if plan.turns else "grouped")
        assert opts.Abele.stash_format == ("F143" if plan.narrow_stash else "none")
        wrapped = poptorch.trainingModel(model, opts, optimizer=sgd(model))
        data, labels = torch.randn(plan.batch, 64), torch.randint(10, (plan.batch,))
        losses.append([float(wrapped(data, labels).mean()) for _ in range(3)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] == pytest.approx(losses[0], rel=2e-2)


def test_fit__code_with_activations_off_the_chip_and_fewer_checkpoints__trains_as_the_usual_pipeline_does(found):
    usual = of_ipus(found, 2, "segments").plan
    losses = []
    fewer = {"spacings": (2, 1), "checkpoints": usual.checkpoints[1::2]}
    for plan in (usual, replace(usual, waits_off_chip=True, **fewer)):
        torch.manual_seed(3)
        model = Classifier()
        opts = run(found.code(plan), model)
        assert opts.TensorLocations.locations(training=True).activations.on_chip != plan.waits_off_chip
        wrapped = poptorch.trainingModel(model, opts, optimizer=sgd(model))
        data, labels = torch.randn(plan.batch, 64), torch.randint(10, (plan.batch,))
        losses.append([float(wrapped(data, labels).mean()) for _ in range(3)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    said = plan_words(replace(usual, waits_off_chip=True, io_tiles=32, spacings=(2, 1), checkpoints=(2, 5)))
    assert "checkpoints where parts 2, 5 begin" in said
    assert "no checkpoints inside of stages" in plan_words(replace(usual, spacings=(2, 1), checkpoints=()))
    assert "activations wait in streaming memory, 32 IO tiles" in said


def test_fit__code_of_phases__trains_as_the_usual_pipeline_does(found):
    usual = of_ipus(found, 2, "segments").plan
    losses = []
    for plan in (usual, replace(usual, ipus=1, phases=True, checkpoints=(), waits_off_chip=True)):
        torch.manual_seed(3)
        model = Classifier()
        opts = run(found.code(plan), model)
        places = opts.TensorLocations.locations(training=True)
        wrapped = poptorch.trainingModel(model, opts, optimizer=sgd(model))
        data, labels = torch.randn(plan.batch, 64), torch.randint(10, (plan.batch,))
        losses.append([float(wrapped(data, labels).mean()) for _ in range(3)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert "setTensorsLiveness(poptorch.Liveness.OffChipAfterEachPhase)" in found.code(plan)
    assert "setOptimizerLocation" not in found.code(plan)
    assert places.off_chip == ()  # Those of the strategy are its own.


def test_fit__fewer_checkpoints__are_those_of_the_plan(found):
    usual = of_ipus(found, 2, "segments").plan
    first = usual.cuts[0]
    assert usual.checkpoints == tuple(range(1, first))
    hooked = []
    for kept in (usual.checkpoints, usual.checkpoints[:1]):
        model = Classifier()
        run(found.code(replace(usual, spacings=(2, 1), checkpoints=kept)), model)
        hooked.append(sum(len(m._forward_pre_hooks) for m in model.modules()))
    # Blocks are hooks, too: each of two.
    assert [count - 2 for count in hooked] == [first - 1, 1]


def test_changes_to_fit__model_on_a_small_chip__are_found_with_half_precision_and_smaller_batches():
    model = Classifier(width=256)
    small = systems.bow_2000().evolve(ipu={"num_tiles": 4, "tile": {"total_bytes": 640_000}})
    report = poptorch.changes_to_fit(model, example(64, 256), system=small, optimizer=sgd(model))
    told = report.fit_changes
    assert not told.fits
    tried = {change for each in told.tried for change in each.changes}
    assert {"micro-batch 64 → 32", "weights and inputs in half precision"} <= tried
    assert told.found
    assert told.found[-1].bytes <= told.available_bytes
    roomy = poptorch.changes_to_fit(model, example(64, 256), system=FEW_TILES, optimizer=sgd(model))
    assert roomy.fit_changes.fits


def test_changes_to_fit__no_micro_batch__is_refused():
    with pytest.raises(InvalidOptionError, match="micro_batch takes a positive whole number, got 0"):
        poptorch.changes_to_fit(Classifier(), example(), micro_batch=0)


def test_fit__plan_in_other_words__says_what_waits_how(found):
    plan = of_ipus(found, 2, "stages").plan
    said = plan_words(replace(plan, turns=True, narrow_stash=True))
    assert "forward and backward stages take turns, activations wait as 8-bit floats" in said
    assert "turns" not in plan_words(plan)


def test_fit__shown__in_text_and_as_card(found):
    text = str(found)
    assert "the smallest part that holds the model is 1 IPU" in text
    assert "opts.replicationFactor" in text
    assert "<table" in found._repr_html_()
    assert found.to_json()["ranking"][0]["cycles"] == found.best.estimate.cycles


def test_fit__model_afterwards__is_as_it_was(found):
    assert found.model.training
    assert not poptorch.module_repr(found.model).count("BeginBlock")


def test_fit__inference__needs_no_optimizer():
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)]).eval()
    made = poptorch.fit(model, torch.zeros(4, 64), system=FEW_TILES.with_ipus(2), micro_batches=[4], batch=64, check=0)
    assert not made.fitted.training
    assert not model.training
    assert "opts.deviceIterations" in made.code()


def test_fit__other_batches__are_those_of_the_example_doubled(monkeypatch):
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    made = poptorch.fit(model, torch.zeros(3, 32), system=FEW_TILES.with_ipus(1), batch=48, check=0)
    assert {r.plan.micro_batch % 3 for r in made.ranking} == {0}
    assert len({r.plan.micro_batch for r in made.ranking}) > 1


def test_fit__module_called_twice__begins_no_stage():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.Linear(32, 32), nn.Linear(32, 32)

        def forward(self, x):
            return self.one(self.other(self.one(x)))

    made = poptorch.fit(
        Twice(), torch.zeros(4, 32), system=FEW_TILES.with_ipus(2), batch=64, micro_batches=[4], check=0
    )
    assert {m for r in made.ranking for m in made.fitted.modules(r.plan)} <= {"", "other"}


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"system": "no-such-pod"}, MachineError, "no-such-pod"),
        ({"batch": 0}, InvalidOptionError, "batch takes positive whole numbers"),
        ({"micro_batches": []}, InvalidOptionError, "micro_batches is empty"),
        ({"check": -1}, InvalidOptionError, "check is a number of plans"),
        ({"batch": 7, "micro_batches": [4]}, FittingError, "no division of a batch of 7"),
    ],
)
def test_fit__wrong_argument__is_named(arguments, error, text):
    with pytest.raises(error, match=text):
        poptorch.fit(nn.Linear(4, 4), torch.zeros(4, 4), **{"system": "bow-2000", **arguments})


def test_fit__no_module__is_refused():
    with pytest.raises(TypeError, match=r"takes a torch\.nn\.Module"):
        poptorch.fit(lambda x: x, torch.zeros(4, 4))


def test_fit__example_without_batch__is_refused():
    with pytest.raises(poptorch.Error, match="no tensor with a batch dimension"):
        poptorch.fit(nn.Linear(4, 4), (3.0,), system="bow-2000")


def test_fit__optimizer_of_another_model__is_refused():
    with pytest.raises(poptorch.Error, match="holds 2 of 2 parameters"):
        poptorch.fit(nn.Linear(4, 4), torch.zeros(4, 4), optimizer=sgd(nn.Linear(4, 4)))


def test_fit__options_of_the_model__are_in_the_code():
    model = Classifier()
    opts = poptorch.Options().syncPattern(poptorch.SyncPattern.SinglePipeline)
    made = poptorch.fit(
        model,
        example(),
        system=FEW_TILES.with_ipus(2),
        batch=128,
        optimizer=sgd(model),
        micro_batches=[8],
        options=opts,
        check=0,
    )
    assert run(made.code(of_ipus(made, 2, "nothing")), model).sync_pattern == poptorch.SyncPattern.SinglePipeline


def test_fit__each_ipu_has_a_share_of_memory_of_its_own__said_in_words_and_code(found):
    plan = replace(of_ipus(found, 4, "segments").plan, proportions=(0.25, 0.25, None, 0.15))
    opts = run(found.code(plan), Classifier())
    assert opts.available_memory_proportion == {0: 0.25, 1: 0.25, 3: 0.15}
    assert "products with 0.25 (IPU 0, 1) and 0.15 (IPU 3) of a tile's memory" in plan_words(plan)


def language():
    """A transformer whose vocabulary divides into no parts."""
    torch.manual_seed(0)
    return Gpt2(vocabulary=61, width=128, layers=2, heads=4, positions=16)


TOKENS = torch.zeros(2, 16, dtype=torch.int32), torch.zeros(2, 16, dtype=torch.long)
SPLIT = known_model("gpt2-medium").split


@pytest.fixture(scope="module")
def of_groups():
    model = language()
    before = dict(model.named_modules())
    how = {"batch": 32, "micro_batches": [2], "tensor_parallel": SPLIT, "group_sizes": (2, 4), "check": 0}
    made = poptorch.fit(model, TOKENS, system=FEW_TILES, optimizer=sgd(model), **how)
    assert dict(model.named_modules()) == before
    return made


@pytest.mark.parametrize(
    ("group", "ipus"), [(2, 1), *(pytest.param(*of, marks=pytest.mark.slow) for of in [(2, 2), (4, 1)])]
)
def test_fit__code_of_groups__trains_and_takes_as_long_as_estimated(of_groups, group, ipus):
    ranked = next(r for r in of_groups.ranking if (r.plan.group, r.plan.ipus) == (group, ipus))
    model = language()
    code = of_groups.code(ranked)
    assert f"tensor_parallel.parallelize_module(model, {group}, {{" in code
    assert f"opts.inputReplicaGrouping({group}, poptorch.CommGroupType.Consecutive)" in code
    wrapped = poptorch.trainingModel(model, run(code, model), optimizer=sgd(model))
    tokens, labels = torch.randint(61, (2, 32, 16))
    losses = [float(wrapped(tokens.int(), labels).mean()) for _ in range(4)]
    assert losses[-1] < losses[0]
    report = wrapped.report()
    assert ranked.estimate.cycles == pytest.approx(report.total_cycles, rel=0.1)
    # Code around stages, of ticks and rings, is not in the estimate.
    fullest = report.memory.by_tile.max() - (2_000 if ipus > 1 else 0)
    assert max(ranked.estimate.ipu_bytes) == pytest.approx(fullest, rel=0.1)


def test_fit__plan_without_sizes__is_tried_on_two_beside_one():
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    made = poptorch.fit(
        model,
        torch.zeros(8, 64),
        system=FEW_TILES.with_ipus(2),
        micro_batches=[8],
        tensor_parallel={"0": tensor_parallel.ColumnSplit(), "2": "row"},
        check=0,
    )
    assert {r.plan.group for r in made.ranking} == {1, 2}
    code = made.code(next(r for r in made.ranking if r.plan.group == 2))
    assert "tensor_parallel.ColumnSplit(" in code
    run(code, model)
    assert isinstance(model[0], tensor_parallel.ColumnLinear)


@pytest.mark.parametrize(
    ("plan", "sizes", "error", "text"),
    [
        ({"layers.*.up": "row"}, (2,), poptorch.Error, "the plan names 'layers.*.up'"),
        ({"first": "column", "head": "row"}, (4,), poptorch.Error, "cannot be split over 4 replicas: 6 features"),
        ({}, (2,), InvalidOptionError, "groups of 2 replicas, and no layer"),
        (None, (1, 2), InvalidOptionError, "groups of 2 replicas, and no layer"),
        ({"first": "column"}, (0,), InvalidOptionError, "group_sizes takes positive whole numbers"),
        ({"first": "column"}, (8,), InvalidOptionError, "groups of 8 replicas cannot share"),
    ],
)
def test_fit__groups_that_the_model_or_the_machine_does_not_go_with__are_refused(plan, sizes, error, text):
    model = nn.Sequential()
    model.add_module("first", nn.Linear(4, 6))
    model.add_module("head", nn.Linear(6, 4))
    with pytest.raises(error, match=re.escape(text)):
        poptorch.fit(model, torch.zeros(4, 4), system="bow-2000", tensor_parallel=plan, group_sizes=sizes)
