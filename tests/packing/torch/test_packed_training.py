"""Models on packs give each sequence what it gets alone, with the losses and gradients of single sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import torch.nn.functional as F  # noqa: N812
from torch import nn

from abele.errors import PackedDataError, PaddingError
from abele.packing.data import Ragged, RowShape, pack_rows, unpack_elements, unpack_sequences
from abele.packing.tasks import (
    Masking,
    as_one_graph,
    bert_pretraining,
    classification,
    graph_shape,
    graphs_of,
    language_model,
    speech,
    squad,
)
from abele.packing.torch import (
    PackedCtcLoss,
    SequenceClassLoss,
    SequenceMeanLoss,
    SequenceScoreLoss,
    SpanLoss,
    as_tensors,
    at_places,
    attention_mask,
)
from support.packed_data import random_ragged

VOCABULARY, WIDTH, DEPTH, LONGEST = 40, 16, 3, 24


class Encoder(nn.Module):
    """Two layers of attention over words and positions."""

    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.words, self.positions = nn.Embedding(VOCABULARY + 2, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY + 2)

    def hidden(self, ids: Any, positions: Any, mask: Any) -> Any:
        x = self.words(ids) + self.positions(positions)
        for norm, qkv in zip(self.norms, self.qkv, strict=True):
            q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in qkv(norm(x)).chunk(3, -1))
            x = x + F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        return x

    def alone(self, ids: Any) -> Any:
        """Result for one sequence by itself, [1, length, width]."""
        length = len(ids)
        mask = torch.ones(length, length, dtype=torch.bool)
        return self.hidden(ids[None], torch.arange(length)[None], mask.tril() if self.causal else mask)

    def packed(self, batch: Any, **mask: Any) -> Any:
        seen = attention_mask(batch["sequence_ids"], causal=self.causal, **mask)
        return self.hidden(batch["input_ids"], batch["position_ids"], seen)


@pytest.fixture
def ids() -> Ragged:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    return random_ragged(rng, rng.integers(3, LONGEST, 14), high=VOCABULARY)


def sequences(ids: Ragged) -> list[Any]:
    return [torch.from_numpy(sequence.copy()) for sequence in ids]


def gradients(model: nn.Module, loss: Any) -> list[Any]:
    return [
        g.clone()
        for g in torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad], allow_unused=True)
        if g is not None
    ]


def same_gradients(model: nn.Module, packed: Any, alone: Any) -> None:
    for a, b in zip(gradients(model, packed), gradients(model, alone), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [{}, {"dtype": torch.float32}, {"dtype": torch.float32, "value": -float("inf")}])
def test_encoder__packed_with_any_mask__gives_each_token_what_it_gets_alone(
    ids: Ragged, causal: bool, mask: Any
) -> None:
    model = Encoder(causal)
    arrays = pack_rows(language_model(ids), RowShape(LONGEST, DEPTH))[:]
    logits = model.head(model.packed(as_tensors(arrays), **mask))
    for number, own in zip(*unpack_elements(logits, arrays), strict=True):
        expected = model.head(model.alone(sequences(ids)[number]))[0]
        np.testing.assert_allclose(own, expected.detach().numpy(), atol=1e-5)


def test_encoder__first_tokens_at_the_end__gives_the_same(ids: Ragged) -> None:
    model = Encoder()
    arrays = pack_rows(
        classification(ids, np.zeros(len(ids), int)), RowShape(LONGEST + DEPTH, DEPTH, first_at_end=True)
    )[:]
    hidden = model.packed(as_tensors(arrays))
    numbers, first = unpack_sequences(hidden[:, -DEPTH:], arrays)
    expected = torch.cat([model.alone(sequence)[:, 0] for sequence in sequences(ids)])
    np.testing.assert_allclose(first, expected.detach().numpy(), atol=1e-5)
    assert numbers.tolist() == list(range(len(ids)))


@pytest.mark.parametrize("num_sequences", [None, 14.0])
def test_language_model__packed_loss__is_the_mean_over_documents(ids: Ragged, num_sequences: float | None) -> None:
    model = Encoder(causal=True)
    batch = as_tensors(pack_rows(language_model(ids), RowShape(LONGEST, DEPTH))[:])
    logits = model.head(model.packed(batch))
    loss = SequenceMeanLoss(DEPTH, num_sequences=num_sequences)(logits, batch["labels"], batch["sequence_ids"])
    alone = [F.cross_entropy(model.head(model.alone(s))[0, :-1], s[1:]) for s in sequences(ids)]
    expected = torch.stack(alone).mean()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    weighted = (
        F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
        * batch["loss_weights"].flatten()
    ).sum()
    assert weighted.item() / 14 == pytest.approx(expected.item(), abs=1e-5)
    same_gradients(model, loss, expected)


def test_bert__packed_losses__are_the_means_over_sequences(ids: Ragged) -> None:
    model, nsp = Encoder(), nn.Linear(WIDTH, 2)
    labels = np.random.default_rng(1).integers(0, 2, len(ids))
    samples = bert_pretraining(ids, Masking(mask_id=VOCABULARY, vocabulary=VOCABULARY), next_sentence_labels=labels)
    batch = as_tensors(pack_rows(samples, RowShape({"tokens": LONGEST, "predictions": 6}, DEPTH))[:])
    hidden = model.packed(batch)
    words = model.head(at_places(hidden, batch["masked_lm_positions"]))
    loss = SequenceMeanLoss(DEPTH)(words, batch["masked_lm_ids"], batch["masked_lm_weights"])
    loss = loss + SequenceClassLoss()(nsp(at_places(hidden, batch["cls_places"])), batch["next_sentence_labels"])
    alone = []
    for number, sequence in enumerate(sequences(samples.columns["input_ids"])):
        own = model.alone(sequence)
        where, what = (
            torch.from_numpy(samples.columns[f"masked_lm_{name}"][number].copy()) for name in ("positions", "ids")
        )
        alone.append(
            F.cross_entropy(model.head(own[0, where]), what)
            + F.cross_entropy(nsp(own[:, 0]), torch.tensor(labels[number : number + 1]))
        )
    expected = torch.stack(alone).mean()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    same_gradients(nn.ModuleList([model, nsp]), loss, expected)


def test_squad__packed_loss__is_the_mean_over_sequences(ids: Ragged) -> None:
    model, head = Encoder(), nn.Linear(WIDTH, 2)
    starts = np.random.default_rng(1).integers(0, ids.lengths)
    ends = np.random.default_rng(2).integers(starts, ids.lengths)
    samples = squad(ids, token_type_ids=ids, start_positions=starts, end_positions=ends)
    batch = as_tensors(pack_rows(samples, RowShape(LONGEST, DEPTH))[:])
    first, last = head(model.packed(batch)).unbind(-1)
    loss = SpanLoss(DEPTH)(first, last, batch["start_positions"], batch["end_positions"], batch["sequence_ids"])
    alone = []
    for number, sequence in enumerate(sequences(ids)):
        logits = head(model.alone(sequence))[0]
        alone += [F.cross_entropy(logits[:, i], torch.tensor(place[number])) for i, place in enumerate((starts, ends))]
    expected = torch.stack(alone).mean()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    same_gradients(nn.ModuleList([model, head]), loss, expected)


def test_regression__packed_loss__is_the_mean_over_sequences(ids: Ragged) -> None:
    model, head = Encoder(), nn.Linear(WIDTH, 1)
    scores = np.random.default_rng(1).random(len(ids)).astype(np.float32)
    batch = as_tensors(pack_rows(classification(ids, scores, regression=True), RowShape(LONGEST, DEPTH))[:])
    given = head(at_places(model.packed(batch), batch["cls_places"]))[..., 0]
    loss = SequenceScoreLoss()(given, batch["labels"], batch["sequence_lengths"])
    alone = torch.cat([head(model.alone(sequence)[:, 0])[0] for sequence in sequences(ids)])
    expected = F.mse_loss(alone, torch.from_numpy(scores))
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    same_gradients(nn.ModuleList([model, head]), loss, expected)


@pytest.mark.parametrize("step", [1, 2])
def test_speech__packed_ctc__is_the_mean_over_utterances(step: int) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    frames = [rng.normal(size=(n, 5)).astype(np.float32) for n in rng.integers(16, 40, 7)]
    targets = [rng.integers(1, 6, n) for n in rng.integers(1, 5, 7)]
    model = nn.Sequential(nn.Flatten(2), nn.Linear(5 * step, 6), nn.LogSoftmax(-1))
    shape = RowShape({"frames": 80, "labels": 12}, DEPTH, alignment={"frames": step})
    batch = as_tensors(pack_rows(speech(frames, targets, step=step), shape)[:])
    loss = PackedCtcLoss(longest_input=40 // step + 1)(
        model(batch["features"].unflatten(1, (-1, step))),
        batch["targets"],
        **{name: batch[name] for name in ("input_begins", "input_lengths", "label_begins", "label_lengths")},
    )
    alone = []
    for own, wanted in zip(frames, targets, strict=True):
        padded = torch.from_numpy(np.pad(own, ((0, -len(own) % step), (0, 0))))
        log_probs = model(padded.unflatten(0, (-1, step))[None])[0]
        lengths = torch.tensor(len(log_probs)), torch.tensor(len(wanted))
        alone.append(F.ctc_loss(log_probs, torch.from_numpy(wanted), *lengths))
    expected = torch.stack(alone).mean()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
    same_gradients(model, loss, expected)


class Gin(nn.Module):
    """Two layers that sum neighbours, and a sum over each graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: Any, edge_index: Any, batch: Any, num_graphs: int) -> Any:
        for layer in self.layers:
            summed = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
            x = torch.relu(layer(x + summed))
        return torch.zeros(num_graphs, x.shape[1]).index_add(0, batch, x)


def test_gin__packed_graphs__give_each_what_it_gets_alone() -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    graphs = []
    for nodes in rng.integers(1, 10, 25):
        ends = rng.integers(0, nodes, (2, rng.integers(0, 15)))
        graphs.append({"x": rng.normal(size=(nodes, 4)).astype(np.float32), "edge_index": ends, "y": float(nodes)})
    model, samples = Gin(), graphs_of(graphs)
    rows = pack_rows(samples, graph_shape(nodes=24, edges=40, graphs=5))
    one = as_one_graph(rows[:], samples.recipe)
    tensors = as_tensors(one)
    found = model(tensors["x"], tensors["edge_index"], tensors["batch"], len(one["graph_mask"])).detach()
    for number, graph in enumerate(graphs):
        x, ends = torch.from_numpy(graph["x"]), torch.from_numpy(graph["edge_index"])
        own = model(x, ends, torch.zeros(len(x), dtype=torch.long), 1)[0]
        torch.testing.assert_close(found[tensors["samples"] == number][0], own.detach(), atol=1e-5, rtol=1e-5)


def test_losses__nothing_to_learn__are_zero_and_finite() -> None:
    empty = torch.zeros(2, 4, dtype=torch.long)
    ignored = torch.full((2, 4), -100)
    logits = torch.randn(2, 4, 5)
    assert SequenceMeanLoss(3)(logits, ignored, empty).item() == 0
    assert SequenceClassLoss()(logits, ignored).item() == 0
    assert SequenceScoreLoss()(logits[..., 0], torch.zeros(2, 4), empty).item() == 0
    assert SpanLoss(4)(logits[..., 0], logits[..., 1], ignored, ignored, empty).item() == 0
    with pytest.raises(PackedDataError, match="num_sequences is above 0"):
        SequenceClassLoss(num_sequences=0)
    with pytest.raises(PaddingError, match=r"not -1e\+06"):
        attention_mask(empty, dtype=torch.float16, value=-1e6)
