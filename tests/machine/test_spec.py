"""Machine descriptions as data: varied at random, told as figures and sources, refused in words."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from abele.errors import MachineError
from abele.machine import System, Target, sources, systems
from abele.machine.spec import Spec


def parts_of(spec: Spec, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Spec]]:
    """The description and every part of it, with its path."""
    found = [(path, spec)]
    for item in dataclasses.fields(spec):
        value = getattr(spec, item.name)
        if isinstance(value, Spec):
            found += parts_of(value, (*path, item.name))
    return found


NUMBERS = [
    (path, item.name)
    for path, part in parts_of(systems.bow_2000())
    for item in dataclasses.fields(part)
    if type(getattr(part, item.name)) in (int, float)
]


def nested(path: tuple[str, ...], name: str, value: object) -> dict[str, object]:
    """A change of one field as ``evolve`` and files have it."""
    table: dict[str, object] = {name: value}
    for step in reversed(path):
        table = {step: table}
    return table


def value_at(system: Spec, path: tuple[str, ...], name: str) -> object:
    for step in path:
        system = getattr(system, step)
    return getattr(system, name)


def told(name: str) -> list[str]:
    """A line for each constant of a preset: its path, value, unit and source."""
    return [
        f"{c.path} = {c.value} {c.unit} [{c.source.confidence}] {c.source.text}" for c in sources(systems.get(name))
    ]


@pytest.mark.parametrize("name", systems.names())
def test_figures__of_every_preset__are_the_stored_ones(name: str, snapshot: SnapshotAssertion) -> None:
    assert systems.get(name).figures() == snapshot
    assert repr(systems.get(name)) == snapshot(name="line")


@pytest.mark.parametrize("name", ["gc2", "bow-2000"])
def test_sources__of_a_preset__are_the_stored_ones(name: str, snapshot: SnapshotAssertion) -> None:
    assert "\n".join(told(name)) == snapshot


@pytest.mark.parametrize("name", ["c2", "c600", "m2000", "bow-pod256"])
def test_sources__unlike_those_of_gc2_and_bow_2000__are_the_stored_ones(name: str, snapshot: SnapshotAssertion) -> None:
    stored = {*told("gc2"), *told("bow-2000")}
    assert "\n".join(line for line in told(name) if line not in stored) == snapshot


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NUMBERS), st.integers(1, 8))
def test_evolve__any_number_doubled__changes_that_field_and_its_source_alone(where, factor):
    path, name = where
    system = systems.bow_2000()
    before = value_at(system, path, name)
    try:
        changed = system.evolve(**nested(path, name, before * factor))
    except MachineError:  # Some figures bound others: a tile's parts are no larger than the tile.
        assume(False)
    assert value_at(changed, path, name) == before * factor
    assert changed.evolve(**nested(path, name, before)) == system
    assert hash(changed.evolve(**nested(path, name, before))) == hash(system)
    old = {c.path: (c.value, c.source.text) for c in sources(system)}
    new = {c.path: (c.value, c.source.text) for c in sources(changed)}
    different = {p for p in old if old[p] != new.get(p)}
    assert different <= {".".join((*path, name))}
    assert factor == 1 or not before or different


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NUMBERS), st.sampled_from([math.nan, math.inf, -1, "7", None, [1]]))
def test_evolve__impossible_number__is_refused_by_the_name_of_the_field(where, value):
    path, name = where
    with pytest.raises(MachineError) as caught:
        systems.bow_2000().evolve(**nested(path, name, value))
    assert name in str(caught.value)


@pytest.mark.parametrize(("path", "name"), [((), "num_ipu"), (("ipu",), "clock"), (("ipu", "tile"), "total_byte")])
def test_evolve__unknown_field__names_the_nearest(path: tuple[str, ...], name: str) -> None:
    with pytest.raises(MachineError, match=name) as caught:
        systems.bow_2000().evolve(**nested(path, name, 1))
    assert "did you mean" in str(caught.value)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=4, unique=True))
def test_load__json_of_changes__equals_evolve(tmp_path_factory, places):
    system = systems.bow_2000()
    table: dict[str, object] = {"base": "bow-2000"}
    for path, name in places:
        level = table
        for step in path:
            level = level.setdefault(step, {})
        level[name] = value_at(system, path, name)
    file = tmp_path_factory.mktemp("machine") / "same.json"
    file.write_text(json.dumps(table), encoding="utf-8")
    loaded = systems.load(file)
    assert loaded.ipu == system.ipu
    assert loaded.num_ipus == system.num_ipus


@pytest.mark.parametrize(
    "content", ["[1, 2]", "{", "base = ", "\xff\xfe", '{"base": 7}', '{"base": "bow", "ipu": 3}', "{}"]
)
def test_load__hostile_file__is_a_machine_error_that_names_it(tmp_path: Path, content: str) -> None:
    for suffix in (".json", ".toml"):
        file = tmp_path / f"machine{suffix}"
        file.write_bytes(content.encode("latin-1"))
        with pytest.raises(MachineError) as caught:
            systems.load(file)
        assert "machine" in str(caught.value)


@pytest.mark.parametrize("name", systems.names())
def test_target__of_every_preset__tells_the_systems_figures(name: str) -> None:
    system = systems.get(name)
    target = Target(system)
    assert target.num_tiles == target.num_ipus * target.tiles_per_ipu == system.num_tiles
    assert target.clock_hz == system.ipu.clock_hz
    assert [target.vector_width(t) for t in ("float", "half")] == [2, 4]
    assert target == Target(systems.get(name))


def test_system__frozen__refuses_assignment() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        systems.bow().num_ipus = 3  # type: ignore[misc]
    assert isinstance(systems.resolve(systems.bow()), System)
