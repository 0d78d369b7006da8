"""Models that are split over groups of replicas: the same as PyTorch's whole model."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest
import torch
from gpt_kit import PLAN, TRAINED, Gpt, GptConfig
from torch import nn

import abele.poptorch as poptorch
from abele.poptorch import tensor_parallel as tp

SMALL = GptConfig(vocabulary=21, tokens=6, width=8, heads=4, layers=1)


def options(replicas: int, size: int, **kwargs: Any) -> poptorch.Options:
    opts = poptorch.Options().replicationFactor(replicas)
    opts.inputReplicaGrouping(size, poptorch.CommGroupType.Consecutive)
    opts.Training.gradientAccumulation(kwargs.get("accumulation", 1))
    return opts


def gpt(config: GptConfig = SMALL) -> Gpt:
    torch.manual_seed(1)
    return Gpt(config)


def data(models: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, SMALL.vocabulary, (2 * models, SMALL.tokens), generator=made)
    labels = torch.randint(0, SMALL.vocabulary, (2 * models, SMALL.tokens), generator=made)
    labels[0, 2] = -100
    return ids, labels


@pytest.mark.parametrize(("replicas", "size"), [(4, 2), pytest.param(4, 4, marks=pytest.mark.slow)])
def test_inference__of_a_split_gpt__is_pytorch(replicas: int, size: int) -> None:
    model = gpt()
    ids, _ = data(replicas // size)
    expected = model(ids)
    split = tp.parallelize_module(copy.deepcopy(model), size, PLAN)
    torch.testing.assert_close(split(ids), expected)  # On the host it is the model that it was.
    assert split.state_dict().keys() == model.state_dict().keys()
    given = poptorch.inferenceModel(split, options(replicas, size))(ids)
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("replicas", "size", "accumulation", "layers"), [(4, 2, 2, 1), pytest.param(2, 2, 2, 2, marks=pytest.mark.slow)]
)
def test_training__of_a_split_gpt_with_adam__is_pytorch(
    replicas: int, size: int, accumulation: int, layers: int
) -> None:
    model, reference = (gpt(replace(SMALL, layers=layers)) for _ in range(2))
    # The optimiser is older than the split.
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3, weight_decay=0.1)
    tp.parallelize_module(model, size, TRAINED)
    wrapped = poptorch.trainingModel(model, options(replicas, size, accumulation=accumulation), optimizer)
    theirs = torch.optim.AdamW(reference.parameters(), lr=0.01, eps=1e-3, weight_decay=0.1)
    models = replicas // size * accumulation
    for seed in range(3):
        ids, labels = data(models, seed)
        _, loss = wrapped(ids, labels)
        losses = [reference(i, t)[1] for i, t in zip(ids.split(2), labels.split(2), strict=True)]
        assert loss.numel() == replicas // size
        expected = torch.stack(losses)[-(replicas // size) :]
        torch.testing.assert_close(loss.reshape(-1), expected, rtol=1e-5, atol=1e-5)
        theirs.zero_grad()
        (sum(losses) / models).backward()
        theirs.step()
    state = wrapped.state_dict()
    for name, tensor in reference.state_dict().items():
        torch.testing.assert_close(
            state[name], tensor, rtol=1e-4, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
    kept = optimizer.state_dict()["ipu_state"]
    (name,) = (n for n in kept if n.startswith("Accl1___") and n.endswith("blocks.0.attention.qkv.weight"))
    assert kept[name].shape == (24, 8)
    optimizer.load_state_dict(optimizer.state_dict())
    torch.testing.assert_close(optimizer.state_dict()["ipu_state"][name], kept[name])


def test_split_model__in_half_precision_with_dropout__keeps_replicas_alike() -> None:
    config = GptConfig(vocabulary=21, tokens=6, width=8, heads=4, layers=1, dropout=0.5)
    model = tp.parallelize_module(gpt(config), 2, TRAINED)
    model.half()
    wrapped = poptorch.trainingModel(model, options(4, 2), poptorch.optim.SGD(model.parameters(), lr=0.1))
    ids, labels = data(2)
    before = model.blocks[0].norm1.weight.clone()
    wrapped(ids, labels)
    session = wrapped._compiled.session
    for name in ("blocks.0.norm1.weight", "blocks.0.down.bias", "positions.weight", "blocks.0.up.weight"):
        rows = session._engine.read(session.compiled.ends.weights[name].handle)
        assert (rows[0] == rows[2]).all(), name
        if name != "blocks.0.up.weight":
            assert (rows[0] == rows[1]).all(), name
    assert not torch.equal(model.blocks[0].norm1.weight, before)


def test_collectives__written_by_hand__are_those_of_the_group() -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        part = tp.scatter_to_group(x, 1, 2)
        return tp.gather_from_group(part * 2, 1, 2), tp.reduce_from_group(x, 2), tp.reduce_scatter_to_group(x, 0, 2)

    x = torch.arange(8.0).reshape(2, 4)
    opts = poptorch.Options().replicationFactor(2).inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive)
    doubled, total, part = poptorch.inferenceModel(model, opts)(x)
    torch.testing.assert_close(doubled, torch.cat([x, x]) * 2)
    torch.testing.assert_close(total, torch.cat([x, x]) * 2)
    torch.testing.assert_close(part, x * 2)
    torch.testing.assert_close(tp.reduce_from_group(x, 2), x)


LABELLED = torch.tensor([0, 6, 2, 3, 2, 5]), torch.tensor([0, 1, 6, 5, 4, 3])


class Labelled(nn.Module):
    """An embedding with padding, and a loss of each row, over a vocabulary that does not divide."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.Embedding(7, 5, padding_idx=2)
        self.head = nn.Linear(5, 7)
        self.loss = tp.SplitCrossEntropyLoss(7, 4, reduction="sum", ignore_index=1)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> Any:
        return self.loss(self.head(self.table(ids)), labels)


def test_vocabulary__with_padding_and_ignored_labels__trains_as_pytorch() -> None:
    model, reference = Labelled(), Labelled()
    tp.parallelize_module(model, 4, {"table": "vocabulary", "head": "vocabulary"})
    wrapped = poptorch.trainingModel(model, options(4, 4), torch.optim.SGD(model.parameters(), lr=0.1))
    ids, labels = LABELLED
    for _ in range(2):
        loss = reference(ids, labels)
        torch.testing.assert_close(wrapped(ids, labels), loss.detach(), rtol=1e-5, atol=1e-5)
        reference.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in reference.parameters():
                p -= 0.1 * p.grad
    for mine, other in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), other.detach(), rtol=1e-4, atol=1e-5)


class Deep(Labelled):
    """With two layers between, cut by columns and by rows."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(5, 8), nn.Linear(8, 5)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> Any:
        return self.loss(self.head(self.down(torch.relu(self.up(self.table(ids))))), labels)


def test_split_model__saved_and_loaded__goes_on_with_whole_weights(tmp_path: Any) -> None:
    model = tp.parallelize_module(
        Deep(), 4, {"table": "vocabulary", "up": "column", "down": "row", "head": "vocabulary"}
    )
    wrapped = poptorch.trainingModel(model, options(4, 4), poptorch.optim.Adam(model.parameters(), lr=0.01))
    wrapped(*LABELLED)
    wrapped.save(str(tmp_path / "model"))
    expected = wrapped(*LABELLED)
    loaded = poptorch.load(str(tmp_path / "model"))
    torch.testing.assert_close(loaded(*LABELLED), expected, rtol=0, atol=0)
    again = pickle.loads(pickle.dumps(wrapped))
    torch.testing.assert_close(again.head.weight, model.head.weight)
    # What divides heads is pickled too.
    split = poptorch.inferenceModel(tp.parallelize_module(gpt(), 2, TRAINED), options(2, 2))
    torch.testing.assert_close(pickle.loads(pickle.dumps(split)).head.weight, split.head.weight)


def refused(plan: Any, words: str, size: int = 2, model: nn.Module | None = None) -> None:
    with pytest.raises(poptorch.Error, match=words):
        tp.parallelize_module(model or gpt(), size, plan)


def test_plan__that_does_not_fit__says_what_is_wrong() -> None:
    refused({"blocks.*.attention.qvk": "column"}, "has no such layer")
    refused({"blocks.*.attention.qkv": "colum"}, "did you mean 'column'")
    refused({"blocks.*.norm1": "row"}, "it is a LayerNorm")
    refused({"blocks.*.attention.heads": "divide"}, "8 of them do not divide|4 of them do not divide", size=3)
    refused({"blocks.*.attention.qkv": tp.ColumnSplit(blocks=3)}, "24 features in 3 blocks", size=5)
    refused({"head": "row"}, "features that it reads", size=3)
    refused({"head": "column"}, "21 features")
    refused({"blocks.0.attention.scale": "divide"}, "no such attribute")
    refused({**PLAN, "loss": "vocabulary"}, "not the one layer whose scores it reads")
    refused({}, "positive whole number", size=0)


def test_options__that_give_replicas_of_a_group_other_inputs__are_refused() -> None:
    model = tp.parallelize_module(gpt(), 2, PLAN)
    for opts in (poptorch.Options(), poptorch.Options().replicationFactor(4), options(4, 4)):
        wrapped = poptorch.inferenceModel(model, opts)
        with pytest.raises(poptorch.Error, match=r"inputReplicaGrouping\(2, poptorch\.CommGroupType\.Consecutive\)"):
            wrapped(data(1)[0])


def test_tied_layers__cut_differently__are_refused() -> None:
    model = gpt()
    model.head.weight = model.tokens.weight
    tp.parallelize_module(model, 2, {"tokens": "vocabulary", "head": "row"})
    with pytest.raises(poptorch.Error, match="one parameter, which both layers cut differently"):
        poptorch.inferenceModel(model, options(2, 2))(data(1)[0])


@pytest.mark.slow
@pytest.mark.usefixtures("whole_machine")
def test_gpt2_small__over_four_ipus__has_pytorchs_logits() -> None:
    config = GptConfig()
    model = gpt(config).eval()
    ids = torch.randint(0, config.vocabulary, (1, 64), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        expected = model(ids)
    tp.parallelize_module(model, 4, PLAN)
    wrapped = poptorch.inferenceModel(model, options(4, 4))
    torch.testing.assert_close(wrapped(ids), expected, rtol=1e-4, atol=1e-4)
    memory = wrapped._compiled.session.report.memory
    assert memory.run_bytes.sum(0).max() < 637_872
