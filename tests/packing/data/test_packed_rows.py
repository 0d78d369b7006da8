"""Rows of packed data hold what a plain loop over samples puts there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import (
    AbeleError,
    ItemSizeError,
    PackedDataError,
    PackMembersError,
    PaddingError,
    PlaceError,
    SampleLengthError,
    TypeMismatchError,
)
from abele.packing.data import (
    Collected,
    Field,
    FirstPlaces,
    LossWeights,
    PackedRows,
    Ragged,
    Recipe,
    RowShape,
    Samples,
    SequenceIds,
    cumulative_lengths,
    pack_rows,
    per_sequence,
    sizes_of,
    unpack_elements,
    unpack_sequences,
)
from abele.packing.data import packed_rows as packed_rows_module
from abele.packing.packs import Packs
from abele.packing.solve import pack_items
from support.examples import examples
from support.packed_data import first_fit, packs_of, random_ragged

ALL = ("sequence_ids", "position_ids", "sequence_lengths", "samples", "first_places", "last_places", "loss_weights")


def samples_of(lengths: Any, *, seed: int = 0) -> Samples:
    rng = np.random.default_rng(seed)
    ids = random_ragged(rng, lengths)
    labels = ids.with_values(np.where(rng.random(len(ids.values)) < 0.5, ids.values, -100))
    columns = {"input_ids": ids, "labels": labels, "score": rng.random(len(ids)), "answer": rng.integers(0, lengths)}
    fields = {"labels": Field(padding=-100), "answer": Field(axis=None, points_to="tokens", padding=-1)}
    return Samples(columns, Recipe(fields, ALL))


def rows_by_hand(samples: Samples, packs: Any, shape: RowShape) -> dict[str, np.ndarray]:
    """Token by token."""
    count, length, depth = len(packs), shape.capacity_of("tokens"), shape.depth
    step = shape.alignment.get("tokens", 1)
    made = {
        "input_ids": np.zeros((count, length), int),
        "labels": np.full((count, length), -100),
        "score": np.zeros((count, depth)),
        "answer": np.full((count, depth), -1),
        "sequence_ids": np.zeros((count, length), int),
        "position_ids": np.zeros((count, length), int),
        "sequence_lengths": np.zeros((count, depth), int),
        "samples": np.full((count, depth), -1),
        "first_places": np.zeros((count, depth), int),
        "last_places": np.zeros((count, depth), int),
        "loss_weights": np.zeros((count, length)),
    }
    for row, members in enumerate(packs):
        begin = 0
        for slot, sample in enumerate(members):
            ids, labels = samples.columns["input_ids"][sample], samples.columns["labels"][sample]
            places = list(range(begin, begin + len(ids)))
            if shape.first_at_end:
                places = [length - depth + slot, *range(begin, begin + len(ids) - 1)]
            wanted = [label for label in labels if label != -100]
            for position, place in enumerate(places):
                made["input_ids"][row, place] = ids[position]
                made["labels"][row, place] = labels[position]
                made["sequence_ids"][row, place] = slot + 1
                made["position_ids"][row, place] = position
                if labels[position] != -100:
                    made["loss_weights"][row, place] = 1 / len(wanted)
            made["score"][row, slot] = samples.columns["score"][sample]
            made["answer"][row, slot] = places[samples.columns["answer"][sample]]
            made["sequence_lengths"][row, slot] = len(ids)
            made["samples"][row, slot] = sample
            made["first_places"][row, slot], made["last_places"][row, slot] = places[0], places[-1]
            taken = len(ids) - 1 if shape.first_at_end else len(ids)
            begin += -(-taken // step) * step
    return made


@examples(15)
@given(
    lengths=st.lists(st.integers(2, 12), min_size=1, max_size=30),
    depth=st.integers(1, 5),
    step=st.integers(1, 4),
    at_end=st.booleans(),
    data=st.data(),
)
def test_rows__any_lengths_and_shapes__are_those_of_a_loop_and_come_back(
    lengths: list[int], depth: int, step: int, at_end: bool, data: st.DataObject
) -> None:
    capacity = data.draw(st.integers(16, 40)) + (depth if at_end else 0)
    shape = RowShape(capacity, depth, alignment={"tokens": step}, first_at_end=at_end)
    samples = samples_of(lengths)
    packs = first_fit(shape.needs(samples.lengths), shape.room(), depth)
    rows = PackedRows(samples, packs, shape)
    batch = rows[:]
    for name, expected in rows_by_hand(samples, packs, shape).items():
        np.testing.assert_allclose(batch[name], expected, rtol=1e-6, err_msg=name)
    numbers, ids = unpack_elements(batch["input_ids"], batch)
    np.testing.assert_array_equal(numbers, np.arange(len(samples)))
    np.testing.assert_array_equal(ids.values, samples.columns["input_ids"].values)
    np.testing.assert_array_equal(ids.offsets, samples.columns["input_ids"].offsets)
    np.testing.assert_array_equal(unpack_sequences(batch["score"], batch)[1], samples.columns["score"])


def test_rows__in_portions__are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = samples_of(np.random.default_rng(3).integers(2, 12, 200))
    rows = pack_rows(samples, RowShape(16, 3))
    whole = rows[:]
    monkeypatch.setattr(packed_rows_module, "ELEMENTS_AT_ONCE", 50)
    for name, array in rows[:].items():
        np.testing.assert_array_equal(array, whole[name])
        assert array.dtype == whole[name].dtype


def test_rows__one_and_several__are_parts_of_all() -> None:
    rows = pack_rows(samples_of([5, 6, 7, 8]), RowShape(16, 2))
    whole = rows[:]
    np.testing.assert_array_equal(rows[-1]["input_ids"], whole["input_ids"][-1])
    np.testing.assert_array_equal(rows[[1, 0, 1]]["input_ids"], whole["input_ids"][[1, 0, 1]])
    with pytest.raises(IndexError):
        rows[len(rows)]


def test_rows__empty_row__is_padding_alone() -> None:
    rows = pack_rows(samples_of([5, 6]), RowShape(16, 2))
    batch = rows.take([len(rows), 0, len(rows)])
    assert not batch["sequence_ids"][[0, 2]].any()
    assert (batch["samples"][[0, 2]] == -1).all()
    assert (batch["labels"][0] == -100).all()


def test_rows__fields_of_several_axes__lie_by_their_own_lengths() -> None:
    fields = {
        "words": Field(axis="predictions", padding=-100),
        "where": Field(axis="predictions", points_to="tokens"),
    }
    columns = {
        "input_ids": Ragged.of([[7, 8, 9], [5, 6]]),
        "words": Ragged.of([[70], []]),
        "where": Ragged.of([[2], []], np.int64),
    }
    derive = {"ids": SequenceIds("predictions"), "weights": LossWeights("words", axis="predictions")}
    samples = Samples(columns, Recipe(fields, derive))
    row = PackedRows(samples, packs_of([[1, 0]]), RowShape({"tokens": 6, "predictions": 2}, 2))[0]
    assert row["input_ids"].tolist() == [5, 6, 7, 8, 9, 0]
    assert row["where"].tolist() == [4, 0]
    assert row["words"].tolist() == [70, -100]
    assert row["ids"].tolist() == [2, 0]
    assert row["weights"].tolist() == [1, 0]
    assert row["where"].dtype == np.int64


def test_rows__multi_dimensional_fields__keep_their_shape() -> None:
    columns = {"frames": Ragged.of([np.ones((2, 3, 4)), np.ones((1, 3, 4))]), "box": np.arange(8).reshape(2, 2, 2)}
    row = PackedRows(Samples(columns), packs_of([[0, 1]]), RowShape(5, 3))[0]
    assert row["frames"].shape == (5, 3, 4)
    assert row["frames"].sum() == 36
    assert row["box"].shape == (3, 2, 2)


def test_place__that_stands_for_none__becomes_padding() -> None:
    fields = {"start": Field(axis=None, points_to="tokens", padding=-100, nowhere=-1)}
    samples = Samples({"ids": Ragged.of([[1, 2], [3, 4]]), "start": np.array([-1, 1])}, Recipe(fields))
    assert PackedRows(samples, packs_of([[0, 1]]), RowShape(4, 2))[0]["start"].tolist() == [-100, 3]


def test_field__with_a_type_of_its_own__has_it_in_rows() -> None:
    samples = Samples({"ids": Ragged.of([[1, 2]])}, Recipe({"ids": Field(dtype=np.uint16)}))
    assert PackedRows(samples, packs_of([[0]]), RowShape(4, 1))[0]["ids"].dtype == np.uint16


def test_sizes__several_axes__are_in_the_order_of_the_shape() -> None:
    columns = {"x": Ragged.of([[1.0], [2.0, 3.0]]), "e": Ragged.of([[], [1]], np.int64)}
    samples = Samples(columns, Recipe({"x": Field(axis="nodes"), "e": Field(axis="edges")}, ()))
    shape = RowShape({"edges": 8, "nodes": 4}, 2)
    assert sizes_of(samples, shape).tolist() == [[0, 1], [1, 2]]
    assert sizes_of(samples, RowShape({"nodes": 4, "edges": 8}, 2)).tolist() == [[1, 1], [2, 1]]


def test_cumulative_lengths__with_and_without_padding__are_those_of_flash_attention() -> None:
    ends, longest = cumulative_lengths([[3, 2, 0], [4, 0, 0]])
    assert (ends.tolist(), ends.dtype, longest) == ([0, 3, 5, 9], np.int32, 4)
    ends, longest = cumulative_lengths([[3, 2, 0], [4, 0, 0]], capacity=6)
    assert (ends.tolist(), longest) == ([0, 3, 5, 6, 10, 12], 4)
    assert cumulative_lengths(np.zeros((0, 2), int))[0].tolist() == [0]
    with pytest.raises(PackedDataError, match="row 0 has more than 4"):
        cumulative_lengths([[3, 2]], capacity=4)
    with pytest.raises(PackedDataError, match="more than int32 counts"):
        cumulative_lengths([[2**31 - 1, 1]])


def test_collected__batches_in_any_order__are_samples_in_order() -> None:
    samples = samples_of(np.random.default_rng(1).integers(2, 12, 50))
    rows = pack_rows(samples, RowShape(16, 3), seed=1)
    tokens, scores = Collected(50), Collected(50)
    for numbers in np.array_split(np.random.default_rng(2).permutation(len(rows)), 4):
        batch = rows.take(numbers)
        tokens.add_elements(batch["input_ids"], batch)
        scores.add_sequences(batch["score"], batch)
    np.testing.assert_array_equal(tokens.in_order().values, samples.columns["input_ids"].values)
    np.testing.assert_array_equal(scores.in_order(), samples.columns["score"])


def test_collected__missing_and_doubled_samples__are_named() -> None:
    rows = pack_rows(samples_of([8, 8, 8]), RowShape(8, 1))
    collected = Collected(3)
    collected.add_sequences(rows.take([0])["score"], rows.take([0]))
    with pytest.raises(PackMembersError, match="has 0 results"):
        collected.in_order()
    collected.add_sequences(rows[:]["score"], rows[:])
    with pytest.raises(PackMembersError, match="has 2 results"):
        collected.in_order()


SHAPE = RowShape(8, 2)
IDS = Ragged.of([[1, 2, 3], [4, 5], [6, 7, 8]])
BAD_PACKS = {
    "packs leave out 1 sample of 3, the first is 2": [[0, 1]],
    "packs hold sample 1 2 times": [[0, 1], [1, 2]],
    "packs hold sample 3, and there are 3": [[0, 1], [2, 3]],
    "packs hold sample -1": [[0, 1], [2, -1]],
    "pack 0 holds 3 sequences, and rows have a depth of 2": [[0, 1, 2]],
}


@pytest.mark.parametrize("words", BAD_PACKS)
def test_packs__that_do_not_fit_samples__are_refused(words: str) -> None:
    with pytest.raises(PackMembersError) as caught:
        PackedRows(Samples({"ids": IDS}), packs_of(BAD_PACKS[words]), SHAPE)
    assert words in str(caught.value)


def test_packs__over_the_room__say_what_took_it() -> None:
    shape = RowShape(8, 2, spare={"tokens": 1}, alignment={"tokens": 2})
    with pytest.raises(PackMembersError) as caught:
        PackedRows(Samples({"ids": IDS}), packs_of([[0, 2], [1]]), shape)
    assert "pack 0 takes 8 tokens, and a row has room for 6" in str(caught.value)
    assert "capacity 8 · spare 1 · begins at multiples of 2" in str(caught.value)


def test_packs__of_one_rank__are_taken_as_a_part() -> None:
    assert len(PackedRows(Samples({"ids": IDS}), packs_of([[0, 1]]), SHAPE, partial=True)) == 1


BAD_SAMPLES: dict[str, tuple[type[AbeleError], Any, Any]] = {
    "there are no samples": (SampleLengthError, {"ids": Ragged.of([])}, {}),
    "sample 1 has no tokens": (SampleLengthError, {"ids": Ragged.of([[1], []])}, {}),
    "sample 1 has 2 tokens in 'ids', 1 in 'labels'": (
        SampleLengthError,
        {"ids": Ragged.of([[1], [1, 2]]), "labels": Ragged.of([[1], [1]])},
        {},
    ),
    "different numbers of samples: ids 3, score 2": (SampleLengthError, {"ids": IDS, "score": np.ones(2)}, {}),
    "points to tokens 2, and the sample has 2": (
        PlaceError,
        {"ids": IDS, "at": np.array([0, 2, 0])},
        {"at": Field(axis=None, points_to="tokens")},
    ),
    "points to tokens -1": (
        PlaceError,
        {"ids": IDS, "at": np.array([0, -1, 0])},
        {"at": Field(axis=None, points_to="tokens")},
    ),
    "holds places, which are whole numbers": (
        TypeMismatchError,
        {"ids": IDS, "at": np.array([0.5, 1, 0])},
        {"at": Field(axis=None, points_to="tokens")},
    ),
    "is padded with 0, and samples hold it 1 times": (
        PaddingError,
        {"ids": Ragged.of([[1, 0]])},
        {"ids": Field(reserved_padding=True)},
    ),
    "padded with -100, which uint8 cannot hold": (
        PaddingError,
        {"ids": Ragged.of([[1]], np.uint8)},
        {"ids": Field(padding=-100)},
    ),
    "holds 300, which uint8 cannot": (TypeMismatchError, {"ids": Ragged.of([[300]])}, {"ids": Field(dtype=np.uint8)}),
    "samples have no column 'idz'; there is 'ids'": (PackedDataError, {"ids": IDS}, {"idz": Field()}),
    "samples have a field that runs along an axis": (PackedDataError, {"score": np.ones(2)}, {}),
    "its column is ragged": (PackedDataError, {"ids": IDS, "score": IDS}, {"score": per_sequence()}),
    "'samples' is a column of the samples and is derived too": (PackedDataError, {"ids": IDS, "samples": IDS}, {}),
    "samples have no edges": (
        PackedDataError,
        {"ids": IDS, "at": np.zeros(3, int)},
        {"at": Field(axis=None, points_to="edges")},
    ),
}


@pytest.mark.parametrize("words", BAD_SAMPLES)
def test_samples__that_cannot_be__are_refused(words: str) -> None:
    kind, columns, fields = BAD_SAMPLES[words]
    with pytest.raises(kind) as caught:
        Samples(columns, Recipe(fields))
    assert words in str(caught.value)


def test_samples__of_mappings__are_those_of_columns() -> None:
    samples = Samples.of([{"ids": [1, 2], "label": 1}, {"ids": [3], "label": 0}])
    assert samples.columns["ids"].values.tolist() == [1, 2, 3]
    assert samples.columns["label"].tolist() == [1, 0]
    with pytest.raises(PackedDataError, match="sample 1 differs from sample 0 in its fields: label"):
        Samples.of([{"ids": [1], "label": 1}, {"ids": [2]}])
    with pytest.raises(SampleLengthError):
        Samples.of([])


def test_samples__over_long__are_cut_with_what_belongs_to_them() -> None:
    samples, origin = Samples({"ids": Ragged.of([[1, 2, 3], [4]]), "label": np.array([8, 9])}).split(2)
    assert samples.lengths.tolist() == [2, 1, 1]
    assert samples.columns["label"].tolist() == [8, 8, 9]
    assert origin.tolist() == [0, 0, 1]
    placed = Samples({"ids": IDS, "at": np.zeros(3, int)}, Recipe({"at": Field(axis=None, points_to="tokens")}))
    with pytest.raises(PackedDataError, match="only samples of one axis, without places, can be cut"):
        placed.split(2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RowShape(0, 1), "the capacity of tokens is a whole number of at least 1, not 0"),
        (lambda: RowShape(8, 0), "depth is a whole number of at least 1, not 0"),
        (lambda: RowShape(8, True), "depth is a whole number"),
        (lambda: RowShape({}, 1), "at least one axis"),
        (lambda: RowShape(8, 1, spare={"nodes": 1}), "rows have no capacity for nodes"),
        (lambda: RowShape(8, 8, first_at_end=True), "have no room left"),
        (lambda: RowShape(8, 1, alignment={"tokens": 0}), "alignment of tokens"),
        (lambda: PackedRows(Samples({"ids": IDS}), packs_of([[0, 1, 2]]), RowShape({"nodes": 4}, 3)), "for tokens"),
        (
            lambda: PackedRows(Samples({"ids": IDS}), packs_of([[0, 1, 2]]), RowShape({"tokens": 9, "x": 4}, 3)),
            "rows have a capacity for x, of which samples have none",
        ),
        (lambda: Samples({"ids": IDS}, Recipe(derive=("position_idz",))), "there is 'position_ids'"),
        (
            lambda: PackedRows(
                Samples({"ids": IDS}, Recipe(derive=("loss_weights",))), packs_of([[0, 1, 2]]), RowShape(9, 3)
            )[0],
            "weights of losses need the field 'labels'",
        ),
        (
            lambda: PackedRows(
                Samples({"ids": IDS}, Recipe(derive={"begins": FirstPlaces(step=2)})),
                packs_of([[0, 1, 2]]),
                RowShape(9, 3),
            )[0],
            "makes one of 2 tokens mixes sequences",
        ),
    ],
)
def test_shapes_and_recipes__that_cannot_be__are_refused(make: Any, words: str) -> None:
    with pytest.raises(PackedDataError) as caught:
        make()
    assert words in str(caught.value)


def test_shape__first_tokens_at_the_end__refuses_sequences_of_one() -> None:
    with pytest.raises(SampleLengthError, match="each has at least 2"):
        RowShape(8, 2, first_at_end=True).needs([3, 1])


@pytest.mark.parametrize("change", ["samples", "sequence_ids", "position_ids"])
def test_unpacking__batch_that_contradicts_itself__is_refused(change: str) -> None:
    rows = pack_rows(samples_of([5, 6]), RowShape(16, 2))
    batch = rows[:]
    with pytest.raises(PackedDataError, match=f"unpacking needs '{change}'"):
        unpack_elements(batch["input_ids"], {k: v for k, v in batch.items() if k != change})
    batch[change] = np.full_like(batch[change], -1 if change == "samples" else 1)
    with pytest.raises(PackedDataError):
        unpack_elements(batch["input_ids"], batch)


HOSTILE: dict[str, tuple[type[AbeleError], Any]] = {
    "rows are whole numbers, got float64": (TypeMismatchError, lambda rows: rows.take([0.5])),
    "rows are numbers, got <U1": (TypeMismatchError, lambda rows: rows["a"]),
    "rows -1 to -1 of": (PackMembersError, lambda rows: rows.take([-1])),
    "items of packs are whole numbers": (
        TypeMismatchError,
        lambda rows: PackedRows(rows.samples, Packs(np.array([0.0]), np.array([0, 1])), SHAPE),  # type: ignore[arg-type]
    ),
    "offsets from 0 to 9 leave": (
        SampleLengthError,
        lambda rows: PackedRows(rows.samples, Packs(np.array([0]), np.array([0, 9])), SHAPE),
    ),
    "padded with nan, which int64 cannot": (
        PaddingError,
        lambda rows: Samples({"i": IDS}, Recipe({"i": Field(padding=float("nan"))})),
    ),
    "padded with inf, which int64 cannot": (
        PaddingError,
        lambda rows: Samples({"i": IDS}, Recipe({"i": Field(padding=float("inf"))})),
    ),
    "holds 1000000000.0, which float16 cannot": (
        TypeMismatchError,
        lambda rows: Samples({"i": Ragged.of([[1e9]])}, Recipe({"i": Field(dtype=np.float16)})),
    ),
    "no results were added": (PackMembersError, lambda rows: Collected(0).in_order()),
    "are numbers, got object": (TypeMismatchError, lambda rows: Samples({"i": None})),
    "samples.split": (
        PackMembersError,
        lambda rows: PackedRows(Samples({"i": Ragged.of([[1] * 9])}), pack_items([9], 4, too_long="split"), SHAPE),
    ),
    "over the capacity of 4": (
        ItemSizeError,
        lambda rows: pack_rows(Samples({"i": Ragged.of([[1] * 9])}), RowShape(4, 1)),
    ),
}


@pytest.mark.parametrize("words", HOSTILE)
def test_rows__what_cannot_be_meant__is_refused_by_type(words: str) -> None:
    kind, make = HOSTILE[words]
    with pytest.raises(kind) as caught:
        make(pack_rows(samples_of([5, 6]), RowShape(16, 2)))
    assert words in str(caught.value)


def test_rows__none_at_all__are_empty_arrays() -> None:
    batch = pack_rows(samples_of([5, 6]), RowShape(16, 2)).take([])
    assert batch["input_ids"].shape == (0, 16)
    assert batch["loss_weights"].shape == (0, 16)


def test_rows__ids_in_a_mapped_file__are_read_where_they_lie(tmp_path: Any) -> None:
    mapped = np.memmap(tmp_path / "ids", np.uint16, "w+", shape=1000)
    mapped[:] = np.arange(1000)
    samples = Samples({"ids": Ragged(mapped, np.arange(0, 1001, 10))})
    assert np.shares_memory(samples.columns["ids"].values, mapped)
    batch = pack_rows(samples, RowShape(40, 4))[:]
    assert batch["ids"].dtype == np.uint16
    assert sorted(batch["ids"].ravel().tolist()) == list(range(1000))
