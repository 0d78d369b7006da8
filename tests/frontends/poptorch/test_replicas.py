"""Data-parallel replicas: the same as PyTorch over the global batch."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import abele.poptorch as poptorch

BATCH = 4


class Classifier(torch.nn.Module):
    """Two layers, what stands between them, and the loss where there are labels."""

    def __init__(self, between: torch.nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.between, self.second = torch.nn.Linear(5, 8), between, torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        hidden = self.first(x)
        scores = self.second(torch.relu(hidden if self.between is None else self.between(hidden)))
        return scores if labels is None else (scores, torch.nn.functional.cross_entropy(scores, labels))


def options(replicas: int, iterations: int = 1, accumulation: int = 1) -> poptorch.Options:
    opts = poptorch.Options().replicationFactor(replicas).deviceIterations(iterations)
    opts.Training.gradientAccumulation(accumulation)
    return opts


def data(micro_batches: int, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    size = BATCH * micro_batches
    return torch.randn(size, 5, generator=made), torch.randint(0, 3, (size,), generator=made)


def parts(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    return zip(*(t.split(BATCH) for t in tensors), strict=True)


def trained(
    model: Classifier, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor, each: int, mean: bool
) -> list[float]:
    """Train as PyTorch does, one step after each ``each`` micro-batches; returns the losses."""
    losses = []
    for number, (part, labels) in enumerate(parts(x, y)):
        loss = model(part, labels)[1]
        (loss / each if mean else loss).backward()
        losses.append(loss.item())
        if number % each == each - 1:
            optimizer.step()
            optimizer.zero_grad()
    return losses


OPTIMISERS = {
    "sgd": lambda optim, parameters: optim.SGD(parameters, lr=0.1),
    "momentum": lambda optim, parameters: optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01),
    "adam": lambda optim, parameters: optim.Adam(parameters, lr=0.01),
}
CASES = [
    ("sgd", 2, 1, 1, True),
    ("sgd", 3, 1, 1, False),
    ("momentum", 2, 2, 2, True),
    ("momentum", 2, 2, 3, False),
    ("adam", 4, 2, 2, True),
]


@pytest.mark.parametrize(("name", "replicas", "iterations", "accumulation", "mean"), CASES)
def test_training__on_replicas__is_pytorch_over_the_global_batch(
    name: str, replicas: int, iterations: int, accumulation: int, mean: bool
) -> None:
    model, reference = Classifier(), Classifier()
    opts = options(replicas, iterations, accumulation).outputMode(poptorch.OutputMode.All)
    kind = poptorch.ReductionType.Mean if mean else poptorch.ReductionType.Sum
    opts.Training.accumulationAndReplicationReductionType(kind)
    wrapped = poptorch.trainingModel(model, opts, OPTIMISERS[name](poptorch.optim, model.parameters()))
    theirs = OPTIMISERS[name](torch.optim, reference.parameters())
    for seed in (1, 2):
        x, y = data(replicas * iterations * accumulation, seed)
        scores, losses = wrapped(x, y)
        assert scores.shape == (len(x), 3)
        expected = trained(reference, theirs, x, y, replicas * accumulation, mean)
        torch.testing.assert_close(losses, torch.tensor(expected), rtol=1e-5, atol=1e-6)
    for mine, other in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), other.detach(), rtol=1e-5, atol=1e-6)


MODES = {
    "all": (poptorch.OutputMode.All, 1, list(range(8))),
    "final": (poptorch.OutputMode.Final, 1, [6, 7]),
    "every": (poptorch.OutputMode.EveryN, 2, [2, 3, 6, 7]),
}


@pytest.mark.parametrize("mode", MODES)
def test_outputs__of_replicas__come_by_iteration_and_then_by_replica(mode: str) -> None:
    chosen, period, picked = MODES[mode]
    x = torch.arange(16.0)
    given = poptorch.inferenceModel(lambda x: (x * 2, x.sum()), options(2, 4).outputMode(chosen, period))(x)
    torch.testing.assert_close(given[0], torch.cat([x.reshape(8, 2)[n] * 2 for n in picked]))
    torch.testing.assert_close(given[1], torch.stack([x.reshape(8, 2)[n].sum() for n in picked]))


def test_outputs__summed__are_a_sum_for_each_replica() -> None:
    x = torch.arange(16.0)
    given = poptorch.inferenceModel(lambda x: x * 2, options(2, 4).outputMode(poptorch.OutputMode.Sum))(x)
    torch.testing.assert_close(given, (x * 2).reshape(4, 2, 2).sum(0).reshape(4))


@pytest.mark.parametrize("kind", [poptorch.CommGroupType.Consecutive, poptorch.CommGroupType.Orthogonal])
def test_inputs__of_groups_of_replicas__are_shared(kind: poptorch.CommGroupType) -> None:
    opts = options(4, 2).inputReplicaGrouping(2, kind)
    x = torch.arange(4.0 * 3).reshape(4, 3)
    given = poptorch.inferenceModel(lambda x: x + 1, opts)(x)
    order = [0, 0, 1, 1] if kind == poptorch.CommGroupType.Consecutive else [0, 1, 0, 1]
    torch.testing.assert_close(given, x.reshape(2, 2, 3)[:, order].reshape(8, 3) + 1)


def test_batch__that_does_not_divide_by_replicas__is_refused_in_full() -> None:
    model = poptorch.inferenceModel(lambda x: x + 1, options(4, 2).inputReplicaGrouping(2, poptorch.CommGroupType(1)))
    text = (
        r"\(6\) must be a multiple of Options\.deviceIterations\(2\) \* \(Options\.replicationFactor\(4\) / "
        r"Options\.inputReplicaGrouping\.input_group_size\(2\)\) \* Options\.Training\.gradientAccumulation\(1\) = 4 "
    )
    with pytest.raises(AssertionError, match=text):
        model(torch.zeros(6, 3))


def test_dropout__on_replicas__draws_for_each_and_again_from_the_same_seed() -> None:
    class Dropped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> Any:
            kept = torch.nn.functional.dropout(x * self.scale, 0.5, training=True)
            return kept, poptorch.identity_loss(kept, "sum")

    def masks() -> torch.Tensor:
        opts = options(4).randomSeed(7).outputMode(poptorch.OutputMode.All)
        model = Dropped()
        wrapped = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=0.0))
        found: torch.Tensor = torch.stack([wrapped(torch.ones(4, 256))[0] for _ in range(2)])
        return found.reshape(8, 256)

    first, again = masks(), masks()
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    for a in range(8):
        for b in range(a):
            share = (first[a] == first[b]).float().mean()
            assert 0.3 < share < 0.7, f"the masks {a} and {b} agree in {share}"


def test_batch_norm__on_replicas__has_the_running_statistics_of_the_first() -> None:
    model = Classifier(torch.nn.BatchNorm1d(8))
    wrapped = poptorch.trainingModel(model, options(2, 3), torch.optim.SGD(model.parameters(), lr=0.0))
    x, y = data(6)
    wrapped(x, y)
    alone = Classifier(torch.nn.BatchNorm1d(8))
    for part, _ in list(parts(x, y))[::2]:
        alone(part)
    assert model.between is not None
    assert alone.between is not None
    assert int(model.between.num_batches_tracked) == 3
    torch.testing.assert_close(model.between.running_mean, alone.between.running_mean)
    torch.testing.assert_close(model.between.running_var, alone.between.running_var)


def test_loader__of_replicas__hands_over_what_one_call_takes() -> None:
    opts = options(2, 2, 3)
    x, y = data(24)
    loader = poptorch.DataLoader(opts, torch.utils.data.TensorDataset(x, y), batch_size=BATCH)
    assert loader.combinedBatchSize == BATCH * 12
    shared = options(4, 2).inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive)
    assert poptorch.DataLoader(shared, loader.dataset, batch_size=BATCH).combinedBatchSize == BATCH * 4
    model = Classifier()
    wrapped = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=0.1))
    reference = Classifier()
    trained(reference, torch.optim.SGD(reference.parameters(), lr=0.1), x, y, 6, mean=True)
    assert [wrapped(*batch)[1].shape for batch in loader] == [(2,), (2,)]
    torch.testing.assert_close(model.second.weight.detach(), reference.second.weight.detach(), rtol=1e-5, atol=1e-6)


def test_saved_executable__of_replicas__goes_on_where_it_was(tmp_path: Any) -> None:
    model, x, y = Classifier(), *data(2)
    wrapped = poptorch.trainingModel(model, options(2), OPTIMISERS["momentum"](poptorch.optim, model.parameters()))
    wrapped(x, y)
    wrapped.save(str(tmp_path / "model"))
    expected = wrapped(x, y)[1]
    loaded = poptorch.load(str(tmp_path / "model"))
    torch.testing.assert_close(loaded(x, y)[1], expected, rtol=0, atol=0)
    torch.testing.assert_close(loaded.second.weight.detach(), model.second.weight.detach(), rtol=0, atol=0)


class Scaled(torch.nn.Module):
    """A scale and an offset, of which replicas may have rows of their own; an offset that has them changes."""

    def __init__(self, rows: int, buffer_rows: int | None = None) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.arange(1.0, 1 + 2 * rows).reshape(rows, 2))
        offsets = torch.zeros(2) if buffer_rows is None else torch.arange(2.0 * buffer_rows).reshape(buffer_rows, 2)
        self.register_buffer("offset", offsets)
        self.offset: torch.Tensor
        self.counts = buffer_rows is not None

    def forward(self, x: torch.Tensor) -> Any:
        y = x * self.scale + self.offset
        if self.counts:
            self.offset += 1.0
        return y, poptorch.identity_loss(y, "sum")


GROUPINGS = {
    "consecutive": (poptorch.CommGroupType.Consecutive, 2, [0, 0, 1, 1]),
    "orthogonal": (poptorch.CommGroupType.Orthogonal, 2, [0, 1, 0, 1]),
    "each": (poptorch.CommGroupType.NoGrouping, 0, [0, 1, 2, 3]),
}


@pytest.mark.parametrize("name", GROUPINGS)
@pytest.mark.parametrize("mean", [True, False])
def test_grouped_parameter__of_four_replicas__is_trained_by_each_group_alone(name: str, mean: bool) -> None:
    kind, shards, row_of = GROUPINGS[name]
    model = Scaled(max(row_of) + 1)
    scale = model.scale.detach().clone()
    opts = options(4).outputMode(poptorch.OutputMode.All)
    reduction = poptorch.ReductionType.Mean if mean else poptorch.ReductionType.Sum
    opts.Training.accumulationAndReplicationReductionType(reduction)
    wrapped = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5))
    wrapped.scale.replicaGrouping(kind, shards, poptorch.VariableRetrievalMode.OnePerGroup)
    momentum = torch.zeros_like(scale)
    for seed in (1, 2):
        x = torch.randn(4, 2, generator=torch.Generator().manual_seed(seed))
        y, _ = wrapped(x)
        torch.testing.assert_close(y, x * scale[row_of])
        for row in range(len(scale)):
            gradient = x[[r for r in range(4) if row_of[r] == row]]
            momentum[row] = 0.5 * momentum[row] + (gradient.mean(0) if mean else gradient.sum(0))
        scale -= momentum
    torch.testing.assert_close(model.scale.detach(), scale)


def test_grouped_parameter__saved_and_loaded__is_grouped_still(tmp_path: Any) -> None:
    model, x = Scaled(2), torch.ones(4, 2)
    opts = options(4).outputMode(poptorch.OutputMode.All)
    wrapped = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=0.1))
    wrapped.scale.replicaGrouping(poptorch.CommGroupType.Consecutive, 2, poptorch.VariableRetrievalMode.OnePerGroup)
    wrapped(x)
    wrapped.save(str(tmp_path / "grouped"))
    loaded = poptorch.load(str(tmp_path / "grouped"))
    expected = wrapped(x)[0]
    torch.testing.assert_close(loaded(x)[0], expected, rtol=0, atol=0)
    loaded.destroy()
    assert loaded(x)[0].shape == expected.shape


def test_grouped_parameter__of_a_copied_wrapper__is_grouped_still() -> None:
    model, x = Scaled(2), torch.randn(4, 2, generator=torch.Generator().manual_seed(3))
    wrapped = poptorch.inferenceModel(model, options(4))
    wrapped.scale.replicaGrouping(poptorch.CommGroupType.Orthogonal, 2, poptorch.VariableRetrievalMode.OnePerGroup)
    for twin in (copy.deepcopy(wrapped), pickle.loads(pickle.dumps(wrapped))):
        torch.testing.assert_close(twin(x)[0], x * torch.tensor([[1.0, 2.0], [3.0, 4.0]])[[0, 1, 0, 1]])


def test_buffers__not_broadcast__are_rows_of_each_replica() -> None:
    model = Scaled(1, buffer_rows=4)
    offset = model.offset.clone()
    opts = options(4, 2).outputMode(poptorch.OutputMode.All).broadcastBuffers(False)
    wrapped = poptorch.inferenceModel(model, opts)
    x = torch.zeros(8, 2)
    y, _ = wrapped(x)
    torch.testing.assert_close(y, torch.cat([offset, offset + 1]))
    wrapped.copyWeightsToHost()
    torch.testing.assert_close(model.offset.detach(), offset + 2)


@pytest.mark.parametrize(
    ("kind", "shards", "mode", "text"),
    [
        (1, 1, 0, r"'scale' has shape \[2, 2\], and no row for each of the 4 groups of replicas"),
        (1, 3, 0, r"CONSECUTIVE groups of 3 replicas, stride 1: 4 replicas do not divide so"),
        (7, 1, 0, r"replicaGrouping: 7 is not a valid CommGroupType"),
        (1, 0, 0, r"replicaGrouping: shards must be a positive whole number, not 0"),
    ],
)
def test_grouping__that_does_not_fit__is_refused(kind: int, shards: int, mode: int, text: str) -> None:
    model = Scaled(2)
    wrapped = poptorch.inferenceModel(model, options(4))

    def grouped() -> None:
        wrapped.scale.replicaGrouping(kind, shards, mode)
        wrapped(torch.zeros(4, 2))

    with pytest.raises((poptorch.Error, ValueError), match=text):
        grouped()


def test_grouping__of_a_compiled_model__is_too_late_until_it_is_destroyed() -> None:
    model = Scaled(1)
    wrapped = poptorch.inferenceModel(model, options(2))
    wrapped(torch.zeros(2, 2))
    with pytest.raises(poptorch.Error, match="replicaGrouping has to be called before the model is compiled"):
        wrapped.scale.replicaGrouping(poptorch.CommGroupType.All, 1, poptorch.VariableRetrievalMode.OnePerGroup)


@pytest.mark.parametrize("training", [True, False])
def test_buffers__that_forward_changes_on_replicas__are_refused_unless_each_has_its_own(training: bool) -> None:
    model = Scaled(1, buffer_rows=1)
    wrap = poptorch.trainingModel if training else poptorch.inferenceModel
    with pytest.raises(
        poptorch.Error,
        match=r"PopTorch does not support broadcasting buffers\. If your model is able to tolerate buffers becoming "
        r"out of sync between replicas, you can disable buffer broadcasting using poptorch\.Options\.broadcastBuffers\("
        r"False\)\.\n  at       .*test_replicas\.py:\d+\n  because  forward changes the buffer 'offset'",
    ):
        wrap(model, options(2))(torch.zeros(2, 2))


def test_running_statistics__of_norms_on_replicas__are_those_of_the_first() -> None:
    torch.manual_seed(0)
    model, x = Classifier(torch.nn.BatchNorm1d(8)), torch.randn(8, 5)
    expected = 0.1 * model.first(x[:4]).mean(0).detach()
    poptorch.trainingModel(model, options(2))(x, torch.zeros(8, dtype=torch.int64))
    torch.testing.assert_close(model.between.running_mean, expected)


@pytest.mark.parametrize("features", [2, 8])
def test_buffers__not_broadcast_and_of_a_norm__are_those_of_the_first_replica(features: int) -> None:
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(features), torch.nn.Flatten(0), Summed())
    twin = copy.deepcopy(model)
    wrapped = poptorch.trainingModel(model, options(2).broadcastBuffers(False))
    x = torch.randn(8, features, generator=torch.Generator().manual_seed(1))
    wrapped(x)
    twin(x[:4])
    torch.testing.assert_close(model[0].running_mean, twin[0].running_mean)


class Summed(torch.nn.Module):
    """The sum as the loss."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return poptorch.identity_loss(x, "sum")


@pytest.mark.parametrize(("name", "training"), [("consecutive", False), ("orthogonal", True)])
def test_grouped_parameter__of_which_all_replicas_come_back__has_a_row_for_each(name: str, training: bool) -> None:
    kind, shards, row_of = GROUPINGS[name]
    model = Scaled(2)
    rows = model.scale.detach().clone()
    opts = options(4).outputMode(poptorch.OutputMode.All)
    opts.Training.gradientAccumulation(2 if training else 1)
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    wrapped = poptorch.trainingModel(model, opts, optimiser) if training else poptorch.inferenceModel(model, opts)
    wrapped.scale.replicaGrouping(kind, shards, poptorch.VariableRetrievalMode.AllReplicas)
    x = torch.ones(8 if training else 4, 2)
    y, _ = wrapped(x)
    torch.testing.assert_close(y[:4], rows[row_of])
    wrapped.copyWeightsToHost()
    expected = rows[row_of] - (1.0 if training else 0.0)
    torch.testing.assert_close(model.scale.detach(), expected)
    wrapped.load_state_dict({**wrapped.state_dict(), "scale": 10 * expected})
    offset = model.offset.clone()
    torch.testing.assert_close(wrapped(x)[0][:4], 10 * expected + offset)
