"""Every kind of field and layout, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from abele.codelet import Size, Sizes, compile_codelet
from abele.codelet.tables import build_tables
from codelet.cpp.conftest import f32, fresh, load, run, zeros

KINDS = load("kinds.cpp")
RNG = np.random.default_rng(3)


def test_scalars__in_out_and_inout__are_read_and_written() -> None:
    done = run(KINDS["ScalarInOut"], a=f32(1.5), b=np.array([2], "i4"), sum=zeros(1), count=np.array([41], "i4"))
    assert done["sum"][0] == 3.5
    assert done["count"][0] == 42


def test_scalars__of_all_widths__keep_their_values() -> None:
    done = run(
        KINDS["ScalarTypes"],
        flag=np.array([True]),
        small=np.array([200], "u1"),
        medium=np.array([-300], "i2"),
        large=np.array([1 << 40], "i8"),
        out=zeros(1, "i8"),
        negated=np.array([True]),
    )
    assert done["out"][0] == (1 << 40) - 100
    assert not done["negated"][0]


def test_one_ptr__with_length_in_state__squares() -> None:
    x = RNG.standard_normal(9).astype("f4")
    done = run(KINDS["OnePtr"], **{"in": x}, out=zeros(9), n=7)
    np.testing.assert_array_equal(done["out"], np.append(x[:7] ** 2, f32(0, 0)))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("float", "f4"),
        ("half", "f2"),
        ("int", "i4"),
        ("unsigned int", "u4"),
        ("unsigned short", "u2"),
        ("signed char", "i1"),
        ("unsigned char", "u1"),
        ("longlong", "i8"),
    ],
)
def test_span__of_every_type__adds_one(name: str, dtype: str) -> None:
    x = RNG.integers(0, 100, 37).astype(dtype)
    done = run(KINDS[f"Span<{name}>"], **{"in": x}, out=zeros(37, dtype))
    np.testing.assert_array_equal(done["out"], x + np.array(1, dtype))


def test_short_span__wraps_around__sums() -> None:
    x = np.arange(20, dtype="i4")
    done = run(KINDS["ShortSpan"], **{"in": x}, total=np.ones(3, "i4"))
    np.testing.assert_array_equal(done["total"], [1 + x[i::3].sum() for i in range(3)])


def test_scaled_pointers__four_layouts__multiply_and_add() -> None:
    a, b, c = RNG.standard_normal((3, 24)).astype("f4")
    done = run(KINDS["Scaled"], a=a, b=b, c=c, out=zeros(24), n=24)
    np.testing.assert_array_equal(done["out"], a * b + c)


def test_bools__are_negated() -> None:
    x = np.array([True, False, True, True])
    np.testing.assert_array_equal(run(KINDS["Bools"], **{"in": x}, out=zeros(4, bool))["out"], ~x)


def test_rows__of_different_lengths__are_summed() -> None:
    rows = [np.arange(n, dtype="f4") for n in (5, 1, 0, 8)]
    done = run(KINDS["RowSums"], **{"in": rows}, out=zeros(4))
    np.testing.assert_array_equal(done["out"], [r.sum() for r in rows])


def test_rows__by_reference__are_written() -> None:
    rows = [np.arange(n, dtype="i4") for n in (3, 0, 6)]
    done = run(KINDS["RowsToRows"], **{"in": rows}, out=[zeros(3, "i4"), zeros(0, "i4"), zeros(4, "i4")])
    for row, out in zip(rows, done["out"], strict=True):
        np.testing.assert_array_equal(out, 10 * row[: len(out)])


def test_rows__in_place__are_scaled_and_rounded() -> None:
    rows = [RNG.standard_normal(n).astype("f2") for n in (4, 9)]
    done = run(KINDS["RowsInPlace"], rows=rows, factor=1.7)
    for row, out in zip(rows, done["rows"], strict=True):
        np.testing.assert_array_equal(out, (row.astype("f4") * np.float32(1.7)).astype("f2"))


def test_gather__of_elements__is_reversed_and_doubled() -> None:
    done = run(KINDS["Gather"], **{"in": f32(1, 2, 3, 4)}, out=zeros(4))
    np.testing.assert_array_equal(done["out"], [8, 6, 4, 2])


def test_vector_list__read__finds_the_largest_of_each_row() -> None:
    rows = [RNG.standard_normal(n).astype("f4") for n in (3, 1, 7)]
    np.testing.assert_array_equal(
        run(KINDS["ListIn"], **{"in": rows}, largest=zeros(3))["largest"], [max(r) for r in rows]
    )


def test_vector_list__written__has_every_element() -> None:
    counts = [np.array([1, 65535], "u2"), np.array([7], "u2")]
    done = run(KINDS["ListOut"], out=[zeros(2, "i4"), zeros(3, "i4")], counts=counts)
    assert [list(r) for r in done["out"]] == [[0, 1], [100, 101, 102]]
    assert [list(r) for r in done["counts"]] == [[2, 0], [8]]


def test_state_vectors__of_two_layouts__filter() -> None:
    x, taps, order = RNG.standard_normal(12).astype("f4"), f32(0.5, 0.25, 2), np.array([2, 0, 1], "u2")
    done = run(KINDS["StateVector"], **{"in": x}, out=zeros(10), taps=taps, order=order)
    wanted = np.zeros(10, "f4")
    for t in range(3):
        wanted += taps[order[t]] * x[t : t + 10]
    np.testing.assert_allclose(done["out"], wanted, rtol=1e-6)


def test_state__not_const__persists_from_run_to_run() -> None:
    x = f32(1, 2, 3)
    done = run(KINDS["Running"], times=3, **{"in": x}, sums=zeros(3), count=zeros(1, "u4"), steps=10, odd=False)
    np.testing.assert_array_equal(done["sums"], 3 * x)
    assert done["count"][0] == 13


def test_fields__are_described__with_layout_alignment_and_memory() -> None:
    fields = KINDS["Scaled"].field_by_name
    assert [(f.layout().name, f.min_align, f.interleaved) for f in list(fields.values())[:4]] == [
        ("SCALED_PTR32", 0, False),
        ("SCALED_PTR64", 8, True),
        ("SCALED_PTR128", 16, True),
        ("COMPACT_PTR", 0, False),
    ]
    assert (fields["n"].direction, fields["n"].type.name, fields["n"].rank) == ("state", "u16", 0)
    rows = KINDS["RowsToRows"].field_by_name["in"]
    assert (rows.rank, [x.name for x in rows.layouts]) == (2, ["ONE_PTR", "ONE_PTR"])
    assert KINDS["Gather"].field_by_name["in"].is_scattered
    assert KINDS["ListOut"].field_by_name["out"].layout().name == "DELTAN"


def test_code_made_for_sizes__of_vectors_rows_and_gathers__does_the_same() -> None:
    rows = [np.arange(4, dtype="f4") + r for r in range(3)]
    for name, fields, sizes in [
        ("RowSums", {"in": rows, "out": zeros(3)}, [Size("in", 3, 4), Size("out", 3)]),
        ("Gather", {"in": f32(1, 2, 3), "out": zeros(3)}, [Size("in", 3), Size("out", 3)]),
        ("Span<float>", {"in": f32(1, 2, 3), "out": zeros(3)}, [Size("in", 3), Size("out", 3)]),
    ]:
        compiled = compile_codelet(KINDS[name])
        plain, sized = fresh(fields), fresh(fields)
        build_tables(KINDS[name], [plain]).run(compiled.run)
        build_tables(KINDS[name], [sized]).run(compiled.run_sized(Sizes.of(sizes)))
        np.testing.assert_array_equal(plain["out"], sized["out"])
