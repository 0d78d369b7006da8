"""Tables of packing beside the published ones, from histograms of a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from abele.errors import FileFormatError, InvalidOptionError
from abele.network import Network, evaluate
from abele.packing import SizeHistogram, pack
from abele.validation.packed import comparing
from abele.validation.packed.comparing import (
    GLUE_ROWS,
    SQUAD_ROWS,
    WIKIPEDIA_ROWS,
    histogram_of,
    read_histograms,
    unpadded_speed_up,
)
from abele.validation.packed.costs import PackCosts, PackRuns
from abele.validation.packed.runs import (
    MASKED,
    UpdateCost,
    overhead,
    packed_run,
    padded_run,
    update_cost,
)
from abele.validation.page import page_text
from abele.validation.training.bert import MASKS, Bert
from abele.validation.training.run import TrainingRun
from abele.validation.training.transformer import LayerSizes, StagePlan

GLUE = "length,glue_rte_128\n10,4\n64,\n100,7\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "lengths.csv"
    path.write_text(text, encoding="utf-8")
    return path


def small() -> TrainingRun:
    sizes = LayerSizes(hidden=64, heads=2, feed_forward=128)
    return TrainingRun(
        name="small",
        system="bow-2000",
        model=Bert(sizes, StagePlan(((1, 0), (1, 2)), (0.2,)), 128, vocabulary=96),
        micro_batch=2,
        accumulation=6,
        replicas=2,
        items=48,
        item="sequence",
        published_seconds=1e-3,
    )


def test_read_histograms__empty_cells__are_zero(tmp_path: Path) -> None:
    found = read_histograms(write(tmp_path, "length,a,none\n3,2,\n5,,\n4, 7 ,0\n"))
    assert list(found) == ["a"]
    assert found["a"].lengths.tolist() == [3, 4]
    assert found["a"].counts.tolist() == [2, 7]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size,a\n1,2\n", "has no column length"),
        ("", "has no column length"),
        ("length,a\n1,2\n1,3\n", "has a length twice"),
        ("length,a\n1,-2\n", "line 2: a is '-2'"),
        ("length,a\n1,2\nx,3\n", "line 3: length is 'x'"),
        ("length,a\n1,2.5\n", "line 2: a is '2.5'"),
    ],
)
def test_read_histograms__bad_file__is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        read_histograms(write(tmp_path, text))


def test_read_histograms__no_text__is_named(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_bytes(b"length,a\n1,\xff\n")
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_histograms(path)


def test_histogram_of__column_that_there_is_not__is_named(tmp_path: Path) -> None:
    path = write(tmp_path, GLUE)
    with pytest.raises(FileFormatError, match=r"no histogram glue_rte_12\n.*did you mean glue_rte_128"):
        histogram_of(read_histograms(path), "glue_rte_12", path)


def test_compare__one_set__has_packs_and_the_bound(tmp_path: Path) -> None:
    (found,), failures = comparing.compare(write(tmp_path, GLUE))
    assert failures == ()
    assert found.key == "packing_glue"
    (figure,) = found.figures
    # Each of 100 takes one of 10 along; the published number is of another histogram.
    assert (figure.name, figure.predicted, figure.reference) == ("rte, SPFHP, no limit", 7, 1330)
    assert not found.holds
    assert "| rte, column generation, no limit | 2 | 7 | 7 |" in found.details
    assert found.details in page_text([found], {})


def test_compare__no_set_that_was_published__says_what_to_add(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="no histogram wikipedia_512"):
        comparing.compare(write(tmp_path, "length,mine\n3,4\n"))


@pytest.mark.shared
@pytest.mark.slow
def test_compare__published_histograms__give_the_published_tables(shared_data: Path) -> None:
    path = shared_data / "data" / "length_histograms.csv"
    histograms = read_histograms(path)
    for rows in (WIKIPEDIA_ROWS[:2], SQUAD_ROWS, GLUE_ROWS):
        chosen = [
            comparing.PackedRow(
                row,
                pack(histograms[row.column], row.capacity, depth=row.depth, method=row.method),  # type: ignore[arg-type]
            )
            for row in rows
        ]
        for row in chosen:
            exact = row.published.method != "nnlshp"
            assert row.plan.num_packs == pytest.approx(row.published.packs, rel=0 if exact else 1e-3)
            if row.published.factor is not None and exact:
                assert round(row.plan.factor, 3) == row.published.factor


def test_packed_run__of_a_run__changes_mask_losses_and_heads_alone() -> None:
    padded = padded_run(small(), "bow-2000")
    packed = packed_run(padded, 3, 1.9)
    assert packed.model == replace(padded.model, packed=3, masked=MASKED + 3, padding_mask=False, mean_packed=1.9)  # type: ignore[type-var]
    assert replace(packed, name=padded.name, model=padded.model) == padded


def cost(cycles: float) -> UpdateCost:
    return UpdateCost(cycles, 1.0, made=1.0, added=2.0, by_sequence=3.0, others=100.0)


@pytest.mark.parametrize(("depth", "share"), [(2, 0.1), (3, 0.1), (8, 0.1), (12, 0.2), (16, 0.2)])
def test_pack_costs__depth__has_the_overhead_of_the_nearest(depth: int, share: float) -> None:
    costs = PackCosts(3, {"once": cost(110.0)}, {"once": cost(100.0)}, deepest=16, deep=cost(120.0))
    assert costs.overhead(depth) == pytest.approx(share)


@pytest.mark.parametrize("masks", MASKS)
def test_network__masks_written_in_each_way__hide_the_same(masks: str) -> None:
    model = packed_run(padded_run(small(), "bow-2000", masks), 2, 1.6).model
    net = model.network(1)
    given = _values(net)
    usual = packed_run(padded_run(small(), "bow-2000"), 2, 1.6).model.network(1)
    (found,), (wanted,) = _results(net, given), _results(usual, given)
    assert found == pytest.approx(wanted, rel=1e-6)


def _values(net: Network) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found = {p.name: rng.normal(size=p.shape) * 0.1 + p.name.endswith("gain") for p in net.parameters}
    found |= {v.name: np.zeros(v.shape, int) for v in net.inputs}
    return found | {"sequence_ids": (np.arange(128) // 64)[None]}


def _results(net: Network, given: dict[str, np.ndarray]) -> list[float]:
    found = evaluate(net, {v: given[v.name] for v in (*net.inputs, *net.parameters)})
    return [float(found[v]) for v in net.outputs]


@pytest.mark.slow
@pytest.mark.rest
def test_realised__small_bert__is_factor_over_one_plus_overhead() -> None:
    histogram = SizeHistogram.of(np.arange(40, 513))
    rows = [
        comparing.PackedRow(row, pack(histogram, 512, depth=row.depth, method=row.method))  # type: ignore[arg-type]
        for row in WIKIPEDIA_ROWS
        if row.depth in (2, 16) and row.realised
    ]
    padded = padded_run(small(), "bow-2000")
    factors = {row.published.depth or 0: row.factor for row in rows}
    with PackRuns(padded, factors) as runs:
        (found,), failures = comparing.realised(rows, runs, padded.system)
    assert failures == ()
    whole = {depth: update_cost(packed_run(padded, depth, factor)) for depth, factor in factors.items()}
    share = overhead(whole[2], update_cost(padded))
    assert share > 0
    assert found.figures[0].predicted == pytest.approx(rows[0].plan.factor / (1 + share))
    assert f"{share:.2%}" in found.details
    deeper = overhead(whole[16], update_cost(padded))
    assert found.figures[1].predicted == pytest.approx(rows[1].plan.factor / (1 + deeper))


@pytest.mark.slow
def test_pack_runs__system_without_room__says_which() -> None:
    padded = replace(padded_run(small(), "bow-2000"), replicas=8)
    with PackRuns(padded, {3: 2.0}) as runs:
        wrong = runs.costs()
    assert isinstance(wrong, str)
    assert "takes 16 IPUs, and bow-2000 has 4" in wrong


def test_unpadded_speed_up__drawn__is_what_is_computed() -> None:
    histogram = SizeHistogram.counted({3: 5, 8: 2, 20: 3})
    rng = np.random.default_rng(0)
    for accelerators, batch in ((1, 1), (4, 5), (60, 3)):
        drawn = rng.choice([3, 8, 20], (20_000, accelerators, batch), p=[0.5, 0.2, 0.3]).sum(axis=2).max(axis=1)
        wanted = batch * 20 / drawn.mean()
        assert unpadded_speed_up(histogram, 20, accelerators, batch) == pytest.approx(wanted, rel=0.01)


def test_unpadded_speed_up__one_accelerator__is_one_over_efficiency() -> None:
    histogram = SizeHistogram.counted({10: 1, 30: 1})
    assert unpadded_speed_up(histogram, 40, 1, 7) == pytest.approx(2.0)
    assert unpadded_speed_up(histogram, 40, 10**6, 1) == pytest.approx(4 / 3)
    with pytest.raises(InvalidOptionError, match="batch = 0"):
        unpadded_speed_up(histogram, 40, 1, 0)
