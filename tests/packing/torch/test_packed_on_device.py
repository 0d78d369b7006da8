"""Packed losses as part of models that PopTorch compiles: those of PyTorch, with their updates."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import torch.nn.functional as F  # noqa: N812
from torch import nn

from abele import poptorch
from abele.packing.data import RowShape, pack_rows
from abele.packing.tasks import Masking, bert_pretraining, classification, speech, squad
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

WORDS, WIDTH, DEPTH, LENGTH = 20, 8, 3, 16
RNG = np.random.default_rng(0)
IDS = random_ragged(RNG, RNG.integers(3, 12, 12), high=WORDS)


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS + 1, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.qkv, self.head = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WORDS + 1)

    def forward(self, ids: Any, positions: Any, owners: Any) -> Any:
        x = self.words(ids) + self.positions(positions)
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        mask = attention_mask(owners, dtype=torch.float32)
        return x + F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)


class Bert(Body):
    def forward(self, batch: Any) -> Any:
        hidden = super().forward(batch["input_ids"], batch["position_ids"], batch["sequence_ids"])
        words = self.head(at_places(hidden, batch["masked_lm_positions"]))
        loss = SequenceMeanLoss(DEPTH)(words, batch["masked_lm_ids"], batch["masked_lm_weights"])
        classes = self.head(at_places(hidden, batch["cls_places"]))
        return poptorch.identity_loss(loss + SequenceClassLoss()(classes, batch["next_sentence_labels"]), "none")


class Squad(Body):
    def forward(self, batch: Any) -> Any:
        hidden = super().forward(batch["input_ids"], batch["position_ids"], batch["sequence_ids"])
        first, last = self.head(hidden)[..., :2].unbind(-1)
        loss = SpanLoss(DEPTH)(first, last, batch["start_positions"], batch["end_positions"], batch["sequence_ids"])
        return poptorch.identity_loss(loss, "none")


class Scores(Body):
    def forward(self, batch: Any) -> Any:
        hidden = super().forward(batch["input_ids"], batch["position_ids"], batch["sequence_ids"])
        given = self.head(at_places(hidden, batch["cls_places"]))[..., 0]
        loss = SequenceScoreLoss()(given, batch["labels"], batch["sequence_lengths"])
        return poptorch.identity_loss(loss, "none")


class Speech(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(3, 5)

    def forward(self, batch: Any) -> Any:
        places = {name: batch[name] for name in ("input_begins", "input_lengths", "label_begins", "label_lengths")}
        log_probs = self.dense(batch["features"]).log_softmax(-1)
        loss = PackedCtcLoss(longest_input=12, longest_labels=4)(log_probs, batch["targets"], **places)
        return poptorch.identity_loss(loss, "none")


def bert_rows() -> Any:
    labels = RNG.integers(0, 2, len(IDS))
    samples = bert_pretraining(IDS, Masking(mask_id=WORDS, vocabulary=WORDS), next_sentence_labels=labels)
    return pack_rows(samples, RowShape({"tokens": LENGTH, "predictions": 4}, DEPTH))


def squad_rows() -> Any:
    starts = RNG.integers(0, IDS.lengths)
    samples = squad(IDS, token_type_ids=IDS, start_positions=starts, end_positions=RNG.integers(starts, IDS.lengths))
    return pack_rows(samples, RowShape(LENGTH, DEPTH))


def score_rows() -> Any:
    return pack_rows(classification(IDS, RNG.random(len(IDS)), regression=True), RowShape(LENGTH, DEPTH))


def speech_rows() -> Any:
    frames = [RNG.normal(size=(n, 3)).astype(np.float32) for n in RNG.integers(8, 12, 6)]
    samples = speech(frames, [RNG.integers(1, 5, n) for n in RNG.integers(1, 4, 6)])
    return pack_rows(samples, RowShape({"frames": 24, "labels": 8}, 2))


@pytest.mark.parametrize(
    ("kind", "rows_of"),
    [
        (Scores, score_rows),
        pytest.param(Bert, bert_rows, marks=pytest.mark.slow),
        pytest.param(Squad, squad_rows, marks=pytest.mark.slow),
        pytest.param(Speech, speech_rows, marks=pytest.mark.slow),
    ],
)
def test_training__packed_losses__are_pytorchs_with_their_updates(kind: Any, rows_of: Any) -> None:
    torch.manual_seed(0)
    model = kind()
    twin = copy.deepcopy(model)
    rows = rows_of()
    batch = as_tensors(rows.take([0, 1, len(rows)]))
    trained = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.5))
    loss = trained(batch)
    expected = twin(batch)
    expected.backward()
    assert float(loss) == pytest.approx(expected.item(), abs=1e-6)
    for (name, after), before in zip(model.named_parameters(), twin.parameters(), strict=True):
        moved = before if before.grad is None else before - 0.5 * before.grad
        np.testing.assert_allclose(after.detach(), moved.detach(), atol=2e-6, err_msg=name)
    trained.destroy()
