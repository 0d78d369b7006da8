"""The shortest list of changes that makes a network fit, each tried."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import abele as ab
from abele.errors import FileFormatError, InvalidOptionError, OutOfMemoryError
from abele.machine import System, systems
from abele.network import Adam, Group, Network, NetworkBuilder, Schedule
from abele.network.ops import build
from abele.report import Report
from abele.report.fit_changes import FitChanges
from abele.session import Settings, changes_to_fit, compile_network
from abele.session.fit_changes import search
from abele.session.remedies import NetworkCase, state_at


def chip(tiles: int, room: float = 1.0) -> System:
    return systems.bow_2000().evolve(ipu={"num_tiles": tiles, "tile": {"total_bytes": int(638_976 * room) // 32 * 32}})


def tower(layers: int, rows: int, width: int) -> Network:
    net = NetworkBuilder()
    hidden = net.input((rows, width), "f32", "x")
    for number in range(layers):
        weight = net.parameter((width, width), "f32", f"w{number}")
        hidden = build.nonlinearity(net, "tanh", build.linear(net, hidden, weight))
    net.loss = build.mean(net, hidden, [0, 1])
    net.output(net.loss)
    return net.finish()


def trained(layers: int, rows: int, width: int, system: System) -> NetworkCase:
    net = tower(layers, rows, width)
    return NetworkCase(net, Schedule(), (Group(Adam(lr=0.01), net.parameters),), Settings(system=system))


class Modelled:
    """Stands for compiling: a tile of 1,000 B, and bytes by what a case is like."""

    def __init__(self, **saved: int) -> None:
        self.saved = saved
        self.cases: list[NetworkCase] = []

    def __call__(self, case: NetworkCase) -> Any:
        self.cases.append(case)
        changed = {
            "recompute": case.settings.recompute,
            "off_chip": not case.schedule.locations.optimiser.on_chip,
            "half": case.settings.memory_proportion == 0.3,
            "quarter": case.settings.memory_proportion == 0.15,
        }
        needed = 2_000 - sum(self.saved.get(name, 0) for name, on in changed.items() if on)
        if needed > 1_000:
            raise OutOfMemoryError("full", tiles=({"tile": 0, "needed_bytes": needed, "available_bytes": 1_000},))
        memory = SimpleNamespace(total=SimpleNamespace(max=lambda: needed), available_bytes=1_000)
        return None, SimpleNamespace(memory=memory)


def found(**saved: int) -> FitChanges:
    return search(trained(2, 4, 16, systems.bow_2000()), Modelled(**saved))


def test_search__one_change_is_enough__is_the_least_of_them() -> None:
    result = found(recompute=1_100, off_chip=1_500)
    assert [t.changes for t in result.found] == [("cheap activations computed again (recompute)",)]
    assert result.found[0].bytes == 900


def test_search__several_are_needed__are_added_up_and_told_one_by_one() -> None:
    result = found(recompute=300, off_chip=500, quarter=400)
    assert [t.bytes for t in result.found] == [1_500, 1_100, 800]
    text = result.text()
    assert "2,000 B of 1,000 B, 1,000 B too much" in text
    assert "it fits with 3 changes" in text
    assert [line.split()[0] for line in text.splitlines()[4:7]] == ["500", "400", "300"]


def test_search__change_that_others_make_needless__is_left_out() -> None:
    # The second is tried before the third, which is enough with the first.
    result = found(off_chip=600, quarter=350, recompute=340, half=0)
    assert len(result.found) == 3
    least = found(off_chip=400, recompute=399, quarter=398)
    assert len(least.found) == 3
    twice = search(trained(2, 4, 16, systems.bow_2000()), Joint())
    assert [set(t.changes) for t in twice.found][-1] == {
        "memory_proportion 0.6 → 0.15",
        "cheap activations computed again (recompute)",
    }


class Joint(Modelled):
    """The state of optimisers saves most alone, but nothing beside the two others together, which are enough."""

    def __call__(self, case: NetworkCase) -> Any:
        settings = case.settings
        both = settings.recompute and settings.memory_proportion == 0.15
        off_chip = not case.schedule.locations.optimiser.on_chip
        self.saved = {"recompute": 300, "quarter": 400, "off_chip": 700 if not both else 1}
        if both:
            self.saved["recompute"] = 900
        elif off_chip:
            self.saved |= {"quarter": 100, "recompute": 100}
        return super().__call__(case)


def test_search__nothing_helps__says_so_and_what_was_tried() -> None:
    result = found(recompute=100)
    assert result.found == ()
    assert len(result.tried) >= 4
    assert "nothing that was tried makes it fit" in result.text()


def test_search__it_fits__tries_nothing() -> None:
    case = trained(2, 4, 16, systems.bow_2000())
    result = search(replace(case, settings=replace(case.settings, recompute=True)), Modelled(recompute=1_500))
    assert result.fits
    assert result.tried == ()
    assert result.text() == "the fullest tile needs 500 B of 1,000 B: it fits"


def test_changes_to_fit__network_on_a_small_chip__are_compiled_and_in_the_report(tmp_path: Path) -> None:
    case = trained(2, 32, 256, chip(4, 0.9))
    report = changes_to_fit(case.net, case.schedule, groups=case.groups, settings=case.settings)
    told = report.fit_changes
    assert not report.memory.fits
    assert told.bytes == report.memory.by_tile.max()
    (change,) = told.found
    assert change.changes == ("the state of optimisers in streaming memory",)
    # The same bytes as of a program that is compiled so.
    there = compile_network(
        case.net, state_at(case, on_chip=False).schedule, groups=case.groups, settings=case.settings
    ).executable.report
    assert change.bytes == there.memory.by_tile.max()
    report.save(tmp_path / "r")
    assert Report.load(tmp_path / "r").fit_changes == told


def test_compile_network__that_does_not_fit__leaves_what_was_tried_in_its_report() -> None:
    case = trained(2, 32, 256, chip(4, 0.4))
    with pytest.raises(OutOfMemoryError) as caught:
        compile_network(case.net, case.schedule, groups=case.groups, settings=case.settings)
    told = caught.value.report.fit_changes
    assert not told.fits
    assert told.bytes == caught.value.report.memory.by_tile.max()
    assert told.tried
    assert all(t.fits == (t in told.found) for t in told.tried)


def test_fit_changes__report_without_them__say_where_they_come_from() -> None:
    graph = ab.Graph(chip(4, 0.5))
    x, y = (graph.variable("f32", (100_000,), name).map(0) for name in "xy")
    report = ab.compile_program(graph, ab.Copy(x, y), allow_out_of_memory=True).report
    with pytest.raises(InvalidOptionError, match="holds no network"):
        report.fit_changes  # noqa: B018
    with pytest.raises(FileFormatError, match="damaged"):
        report.with_meta(changes_to_fit={"bytes": "many"}).fit_changes  # noqa: B018
