"""Packed samples of tasks are those of a loop over sequences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import PackedDataError, PlaceError, SampleLengthError, TypeMismatchError
from abele.packing.data import PackedRows, Ragged, RowShape, pack_rows, unpack_elements
from abele.packing.tasks import (
    Masking,
    as_one_graph,
    bert_pretraining,
    best_spans,
    classification,
    graph_shape,
    graphs_of,
    language_model,
    masked_words,
    next_token_labels,
    own_token_labels,
    shifted_labels,
    speech,
    squad,
    token_labels,
)
from support.examples import examples
from support.packed_data import packs_of, random_ragged

MASKING = Masking(mask_id=103, vocabulary=100, kept_ids=(1, 2))


@examples(10)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=20))
def test_labels_of_next_tokens__any_lengths__cross_no_border(lengths: list[int]) -> None:
    ids = random_ragged(np.random.default_rng(0), lengths)
    rows = pack_rows(language_model(ids), RowShape(10, 4))
    batch = rows[:]
    for number, labels in zip(*unpack_elements(batch["labels"], batch), strict=True):
        assert labels.tolist() == [*ids[number][1:].tolist(), -100]
    np.testing.assert_array_equal(shifted_labels(batch["input_ids"], batch["sequence_ids"]), batch["labels"])
    counted = int((ids.lengths > 1).sum())
    assert batch["loss_weights"].sum() == pytest.approx(counted, rel=1e-5)


def test_own_labels__models_that_shift__predict_no_first_token() -> None:
    ids = Ragged.of([[5, 6, 7], [8, 9]])
    assert own_token_labels(ids).values.tolist() == [-100, 6, 7, -100, 9]
    pieces = language_model(ids, model_shifts=True, longest=2)
    assert pieces.columns["labels"].own_values.tolist() == [-100, 6, -100, -100, 9]
    assert language_model(ids, longest=2).columns["labels"].own_values.tolist() == [6, 7, -100, 9, -100]


def test_labels__of_unsigned_ids__can_be_ignored() -> None:
    labels = next_token_labels(Ragged.of([[1, 2]], np.uint16))
    assert labels.values.tolist() == [2, -100]
    assert next_token_labels(Ragged.of([[1], [], [2, 3]])).values.tolist() == [-100, 3, -100]
    with pytest.raises(PackedDataError, match="labels of shape"):
        shifted_labels([[1, 2]], [[1, 1, 0]])


@examples(7)
@given(st.lists(st.integers(3, 40), min_size=1, max_size=12), st.floats(0.01, 1), st.integers(0, 99))
def test_masked_words__any_proportion__are_allowed_ones_and_put_back_right(
    lengths: list[int], proportion: float, seed: int
) -> None:
    ids = random_ragged(np.random.default_rng(1), lengths, high=90)
    masking = Masking(mask_id=103, vocabulary=100, proportion=proportion, kept_ids=(1, 2), most=5)
    if not all((~np.isin(sequence, (1, 2))).any() for sequence in ids):
        return
    made = masked_words(ids, masking, seed)
    parts = zip(ids, made["input_ids"], made["masked_lm_positions"], made["masked_lm_ids"], strict=True)
    for before, after, positions, words in parts:
        allowed = int((~np.isin(before, (1, 2))).sum())
        assert len(positions) == min(5, max(1, round(allowed * proportion)))
        assert (np.diff(positions) > 0).all()
        assert before[positions].tolist() == words.tolist()
        assert not np.isin(words, (1, 2)).any()
        untouched = np.ones(len(before), bool)
        untouched[positions] = False
        assert before[untouched].tolist() == after[untouched].tolist()


def test_masked_words__many__are_masked_random_and_kept_as_published() -> None:
    ids = random_ragged(np.random.default_rng(2), [400] * 100, high=99)
    made = masked_words(ids, MASKING, 5)
    words = made["masked_lm_ids"].values
    where = np.repeat(ids.offsets[:-1], made["masked_lm_ids"].lengths) + made["masked_lm_positions"].values
    now = made["input_ids"].values[where]
    assert np.mean(now == 103) == pytest.approx(0.8, abs=0.02)
    assert np.mean(now == words) == pytest.approx(0.1 + 0.1 / 100, abs=0.02)
    assert len(words) / len(ids.values) == pytest.approx(0.15, abs=0.01)
    again = masked_words(ids, MASKING, (5, 1))
    assert not np.array_equal(again["masked_lm_positions"].values, made["masked_lm_positions"].values)


def test_masked_words__what_cannot_be_masked__is_refused() -> None:
    with pytest.raises(PackedDataError, match="sequence 1 has no token that may be masked"):
        masked_words(Ragged.of([[5, 1], [1, 2]]), MASKING)
    with pytest.raises(TypeMismatchError, match="uint8 cannot hold the mask 300"):
        masked_words(Ragged.of([[5]], np.uint8), Masking(mask_id=300, vocabulary=5))
    with pytest.raises(PackedDataError, match="no parts of a whole"):
        Masking(mask_id=1, vocabulary=5, masked=0.9, random=0.2)


def test_bert__pack__has_weights_ids_places_and_labels_of_each_sequence() -> None:
    ids = random_ragged(np.random.default_rng(3), [20, 30, 9], high=90)
    samples = bert_pretraining(ids, MASKING, next_sentence_labels=np.array([1, 0, 1]), seed=1)
    batch = PackedRows(samples, packs_of([[2, 0], [1]]), RowShape({"tokens": 32, "predictions": 6}, 3))[:]
    counts = samples.axis_lengths("predictions")
    assert batch["masked_lm_weights"][0].tolist() == [1] * counts[2] + [2] * counts[0] + [0] * (
        6 - counts[2] - counts[0]
    )
    assert batch["next_sentence_labels"].tolist() == [[1, 1, -100], [0, -100, -100]]
    assert batch["cls_places"].tolist() == [[0, 9, 0], [0, 0, 0]]
    labels = token_labels(batch["masked_lm_positions"], batch["masked_lm_ids"], capacity=32)
    original = unpack_elements(np.where(labels == -100, batch["input_ids"], labels), batch)[1]
    np.testing.assert_array_equal(original.values, ids.values)
    assert batch["loss_weights"].sum() == pytest.approx(3, rel=1e-6)


def test_squad__places_of_answers__are_those_of_the_pack_and_come_back() -> None:
    ids = random_ragged(np.random.default_rng(4), [6, 5, 7])
    types = ids.with_values(np.ones(18, np.int64))
    samples = squad(ids, token_type_ids=types, start_positions=[1, 4, 0], end_positions=[3, 4, 6])
    batch = PackedRows(samples, packs_of([[1, 0], [2]]), RowShape(12, 2))[:]
    assert batch["start_positions"].tolist() == [[4, 6], [0, -100]]
    assert batch["end_positions"].tolist() == [[4, 8], [6, -100]]
    logits = np.full((2, 2, 12), -5.0)
    rows, slots = np.nonzero(batch["start_positions"] >= 0)
    logits[0, rows, batch["start_positions"][rows, slots]] = 5
    logits[1, rows, batch["end_positions"][rows, slots]] = 5
    found = best_spans(*logits, batch)
    assert (found.starts.tolist(), found.ends.tolist()) == ([1, 4, 0], [3, 4, 6])
    assert found.scores.tolist() == [10, 10, 10]


@examples(7)
@given(st.integers(0, 2**31), st.integers(1, 6))
def test_best_spans__random_logits__are_those_of_all_pairs(seed: int, longest: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, 9)
    ids = random_ragged(rng, lengths)
    places = np.zeros(9, int)
    samples = squad(ids, token_type_ids=ids, start_positions=places, end_positions=places)
    batch = pack_rows(samples, RowShape(12, 3))[:]
    starts, ends = rng.normal(size=(2, *batch["input_ids"].shape))
    found = best_spans(starts, ends, batch, longest=longest)
    own_starts, own_ends = unpack_elements(starts, batch)[1], unpack_elements(ends, batch)[1]
    for number in range(9):
        a, b = own_starts[number], own_ends[number]
        pairs = [(a[i] + b[j], i, j) for i in range(len(a)) for j in range(i, min(len(a), i + longest))]
        score, start, end = max(pairs)
        assert found.scores[number] == pytest.approx(score)
        assert (found.starts[number], found.ends[number]) == (start, end)


def test_squad__answers_that_are_nowhere__are_refused_or_ignored() -> None:
    ids = Ragged.of([[1, 2, 3]])
    with pytest.raises(PlaceError, match="another sequence of the same pack"):
        squad(ids, token_type_ids=ids, start_positions=[1], end_positions=[3])
    with pytest.raises(PackedDataError, match="ends at 0, before it begins at 1"):
        squad(ids, token_type_ids=ids, start_positions=[1], end_positions=[0])
    cut = squad(ids, token_type_ids=ids, start_positions=[-1], end_positions=[-1], nowhere=-1)
    assert PackedRows(cut, packs_of([[0]]), RowShape(4, 1))[0]["start_positions"].tolist() == [-100]


def test_classification__first_tokens_at_the_end__are_a_slice_of_the_row() -> None:
    ids = Ragged.of([[1, 5, 6], [1, 7], [1, 8, 9]])
    shape = RowShape(8, 3, first_at_end=True)
    batch = pack_rows(classification(ids, [1, 0, 2]), shape)[:]
    assert len(batch["input_ids"]) == 1
    assert batch["input_ids"][0, -3:].tolist() == [1, 1, 1]
    assert batch["cls_places"].tolist() == [[5, 6, 7]]
    scores = classification(ids, [0.5, 1, 2], regression=True)
    assert pack_rows(scores, RowShape(8, 3))[0]["labels"].dtype == np.float32


def test_speech__subsampled_frames__begin_where_the_model_gives_them() -> None:
    samples = speech([np.ones((5, 3)), np.ones((7, 3))], [[1, 2], [3]], step=2)
    shape = RowShape({"frames": 14, "labels": 4}, 2, alignment={"frames": 2})
    row = PackedRows(samples, packs_of([[0, 1]]), shape)[0]
    assert row["features"].sum(1).tolist() == [3] * 5 + [0] + [3] * 7 + [0]
    assert row["input_begins"].tolist() == [0, 3]
    assert row["input_lengths"].tolist() == [3, 4]
    assert row["output_ids"].tolist() == [1, 1, 1, 2, 2, 2, 2]
    assert row["label_begins"].tolist() == [0, 2]
    assert row["label_lengths"].tolist() == [2, 1]
    assert row["targets"].tolist() == [1, 2, 3, 0]


def test_speech__labels_that_cannot_be_aligned__are_refused() -> None:
    with pytest.raises(PackedDataError, match="has 2 outputs of 3 frames, and its labels need 3"):
        speech([np.ones((3, 1))], [[1, 1]], step=2)
    with pytest.raises(PackedDataError, match="a target of sample 0 is the blank, 0"):
        speech([np.ones((3, 1))], [[0]])
    with pytest.raises(PackedDataError, match="mixes sequences that begin at multiples of 1"):
        pack_rows(speech([np.ones((4, 1))], [[1]], step=2), RowShape({"frames": 4, "labels": 1}, 1))[0]


class Graph:
    """As PyTorch Geometric's ``Data`` looks from outside."""

    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)


def graphs(count: int, seed: int = 0) -> list[Graph]:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        nodes, edges = rng.integers(1, 9), rng.integers(0, 12)
        ends = rng.integers(0, nodes, (2, edges))
        attributes = {"edge_attr": rng.random((edges, 2)), "y": rng.random((1, 3))}
        made.append(Graph(x=rng.random((nodes, 4)), edge_index=ends, **attributes))
    return made


def test_graphs__as_one__are_the_disjoint_union_and_padding() -> None:
    given = graphs(30)
    samples = graphs_of(given)
    rows = pack_rows(samples, graph_shape(nodes=20, edges=30, graphs=4))
    one = as_one_graph(rows[:], samples.recipe)
    assert one["edge_index"].shape == (2, len(rows) * 30)
    owner = one["batch"]
    assert (owner[one["edge_index"][0]] == owner[one["edge_index"][1]]).all()
    for number, graph in enumerate(given):
        at = int(np.flatnonzero(one["samples"] == number)[0])
        nodes = np.flatnonzero(owner == at)
        np.testing.assert_array_equal(one["x"][nodes], graph.x)
        own = np.isin(one["edge_index"][0], nodes)
        np.testing.assert_array_equal(one["edge_index"][:, own] - nodes[0], graph.edge_index)
        np.testing.assert_array_equal(one["edge_attr"][own], graph.edge_attr)
        np.testing.assert_array_equal(one["y"][at], graph.y[0])
    assert one["graph_mask"].sum() == 30
    padding = ~one["graph_mask"][owner]
    assert not one["x"][padding].any()


def test_graphs__without_edges__are_points_alone() -> None:
    samples = graphs_of([{"z": np.array([1, 8]), "pos": np.ones((2, 3)), "y": 0.5}] * 3)
    one = as_one_graph(pack_rows(samples, graph_shape(nodes=7, edges=None, graphs=3))[:], samples.recipe)
    assert one["batch"].tolist() == [0, 0, 1, 1, 2, 2, 3]
    assert one["y"].tolist() == [0.5, 0.5, 0.5, 0]


def test_graphs__that_cannot_be__are_refused() -> None:
    with pytest.raises(PlaceError, match="points to nodes 2"):
        graphs_of([Graph(x=np.ones((2, 1)), edge_index=np.array([[0], [2]]))])
    with pytest.raises(PackedDataError, match=r"edge_index of graph 0 has the shape \[3, 1\]"):
        graphs_of([Graph(x=np.ones((2, 1)), edge_index=np.zeros((3, 1), int))])
    with pytest.raises(PackedDataError, match="graph 1 has no 'y'"):
        graphs_of([Graph(x=np.ones((2, 1)), y=1.0), Graph(x=np.ones((2, 1)))])
    with pytest.raises(SampleLengthError, match="'y' differs in shape"):
        graphs_of([Graph(x=np.ones((2, 1)), y=np.ones(2)), Graph(x=np.ones((3, 1)), y=np.ones(3))])
    with pytest.raises(SampleLengthError, match="there are no graphs"):
        graphs_of([])
    samples = graphs_of(graphs(3))
    with pytest.raises(PackedDataError, match="leaves one empty in every row"):
        pack_rows(samples, RowShape({"nodes": 20, "edges": 40}, 3))
