"""Exchange between tiles, between IPUs and over links: against brute force and the sums of other tables."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import abele as ab
from abele.compiler import Executable
from abele.compiler.account_exchange import BLOCKS_PER_IPU
from abele.errors import EngineError, InvalidOptionError
from abele.machine import systems
from abele.report import Report
from compiler.support import Reader, Writer, small_system
from support.examples import examples


def exchanged(executable: Executable, *, num_ipus: int) -> None:
    """Hold the exchange between pairs of tiles to the bytes received by each tile, and links to the traffic between
    IPUs.
    """
    report = executable.report
    for row in np.flatnonzero(report.steps["kind"] == "exchange").tolist():
        received = report.step_by_tile("received_bytes", row)
        pairs = executable.exchange_pairs(row)
        found = np.bincount(pairs["target_tile"], weights=pairs["bytes"], minlength=len(received))
        assert found.tolist() == received.tolist()
        assert (pairs["source_tile"] != pairs["target_tile"]).all()
        held = report.exchange_of(row)
        width = max(-(-report.target["tiles_per_ipu"] // BLOCKS_PER_IPU), 1)
        again = executable.exchange_pairs(row, block_tiles=width)
        names = ("source_tile", "target_tile", "block_tiles", "bytes")
        assert {n: held[n].tolist() for n in names} == {n: again[n].tolist() for n in names}
        # What crosses to an IPU crosses once for all of its tiles.
        each = report.target["tiles_per_ipu"]
        between: Counter[tuple[int, int]] = Counter()
        for source, target, size in zip(
            *(pairs[n].tolist() for n in ("source_tile", "target_tile", "bytes")), strict=True
        ):
            between[source // each, target // each] += size
        phase = int(report.steps["phase"][row])
        crossing = report.phase_ipus.where("phase", phase)
        ends = zip(crossing["source_ipu"].tolist(), crossing["target_ipu"].tolist(), strict=True)
        for (source, target), size in zip(ends, crossing["bytes"].tolist(), strict=True):
            assert 0 < size <= between[source, target]
        assert len(crossing) == sum(source != target for source, target in between)
        links = report.phase_links.where("phase", phase)
        if num_ipus == 2:
            assert links["bytes"].sum() == crossing["bytes"].sum()


@examples(12)
@given(data=st.data())
def test_exchange_pairs__random_wiring__add_up_to_what_tiles_receive(data: st.DataObject) -> None:
    num_ipus = data.draw(st.sampled_from([1, 2]))
    graph = ab.Graph(small_system(num_ipus=num_ipus))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    x = graph.variable(ab.f32, (16, 4), "x").map_rows(rng.integers(0, graph.num_tiles, 16))
    y = graph.variable(ab.f32, (16, 4), "y").map_rows(rng.integers(0, graph.num_tiles, 16))
    work = graph.compute_set("work")
    for _ in range(data.draw(st.integers(1, 12))):
        begin, end = sorted(rng.choice(17, 2, replace=False).tolist())
        work.vertex(Reader, tile=int(rng.integers(graph.num_tiles)), x=x[begin:end].flatten())
    work.vertex(Writer, tile=int(rng.integers(graph.num_tiles)), y=y[3:9].flatten())
    program = ab.Sequence(ab.Execute(work), ab.Copy(x[2:8], y[8:14]), ab.Execute(work))
    exchanged(ab.compile_program(graph, program), num_ipus=num_ipus)


def test_exchange_pairs__one_copy__names_both_tiles() -> None:
    graph = ab.Graph(small_system(num_ipus=2))
    x = graph.variable(ab.f32, (2, 8), "x").map_rows([3, 4])
    y = graph.variable(ab.f32, (2, 8), "y").map_rows([12, 4])
    executable = ab.compile_program(graph, ab.Copy(x, y))
    pairs = executable.exchange_pairs(0)
    assert [pairs[n].tolist() for n in ("source_tile", "target_tile", "bytes")] == [[3], [12], [32]]
    blocks = executable.exchange_pairs(0, block_tiles=5)
    assert [blocks[n].tolist() for n in ("source_tile", "target_tile", "block_tiles")] == [[0], [8], [5]]
    report = executable.report
    assert list(report.phase_ipus.rows()) == [{"phase": 0, "source_ipu": 0, "target_ipu": 1, "bytes": 32}]
    assert list(report.phase_links.rows()) == [
        {"phase": 0, "kind": "rung", "source_ipu": 0, "target_ipu": 1, "bytes": 32}
    ]


def test_exchange_blocks__equal_step_on_the_next_ipu__lies_there() -> None:
    graph = ab.Graph(small_system(num_ipus=2))
    steps = []
    for ipu in range(2):
        x = graph.variable(ab.f32, (4, 8), f"x{ipu}").map_rows(8 * ipu + np.arange(4))
        work = graph.compute_set("work")
        work.vertices(Reader, tile=8 * ipu + 4 + np.arange(4), x=x)
        steps.append(ab.Execute(work))
    report = ab.compile_program(graph, ab.Sequence(*steps)).report
    rows = np.flatnonzero(report.steps["kind"] == "exchange").tolist()
    first, second = (report.exchange_of(row) for row in rows)
    assert first["source_tile"].tolist() == [0, 1, 2, 3]
    assert first["target_tile"].tolist() == [4, 5, 6, 7]
    for name in ("source_tile", "target_tile"):
        assert second[name].tolist() == (first[name] + 8).tolist()


def test_phase_ipus__copies_between_replicas__number_the_ipus_of_the_whole_machine() -> None:
    from abele.poplibs import gcl

    graph = ab.Graph(systems.get("bow-2000").with_ipus(4).evolve(ipu={"num_tiles": 8}), replicas=4)
    x = graph.variable(ab.f32, (64,), "x").map_linear()
    program = ab.Sequence()
    gcl.allReduceCrossReplica(graph, x, "add", program)
    report = ab.compile_program(graph, program).report
    found = report.phase_ipus
    assert len(found)
    assert set(found["source_ipu"].tolist()) == {0, 1, 2, 3}
    partners = report.steps["partner"][np.isin(report.steps["phase"], found["phase"])]
    assert set(partners.tolist()) == {"replicas"}
    assert set(report.phase_links["kind"].tolist()) <= {"rung", "rail"}


def test_exchange_pairs__what_is_no_exchange_or_not_there__is_said(tmp_path: Path) -> None:
    graph = ab.Graph(small_system())
    x = graph.variable(ab.f32, (8,), "x").map(0)
    y = graph.variable(ab.f32, (8,), "y").map(0)
    program = ab.Sequence(ab.Copy(x, y), ab.Copy(graph.host_stream_in("in", ab.f32, (8,)), x))
    executable = ab.compile_program(graph, program)
    assert [len(executable.exchange_pairs(row)) for row in range(2)] == [0, 0]
    with pytest.raises(InvalidOptionError, match="no step 2\n  try      the report has rows 0 to 1"):
        executable.exchange_pairs(2)
    with pytest.raises(InvalidOptionError, match="blocks of 0 tiles"):
        executable.exchange_pairs(0, block_tiles=0)
    report = executable.report
    program.add(ab.Copy(y, x))
    with pytest.raises(EngineError, match="has changed since it was compiled"):
        executable.exchange_pairs(0)
    report.save(tmp_path / "r")
    assert not len(Report.load(tmp_path / "r").exchange_blocks)
