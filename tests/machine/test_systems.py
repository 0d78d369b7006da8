"""Presets, user systems from Python and from files, sources, and every error about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from abele.errors import MachineError
from abele.machine import CONFIDENCE, WORKS, System, cited_works, sources, systems
from abele.machine.source import stated


@pytest.mark.parametrize("name", systems.names())
def test_sources__every_preset__covers_every_number_with_text_and_confidence(name: str) -> None:
    constants = sources(systems.get(name))
    assert len(constants) > 50
    for item in constants:
        assert item.source.text, item.path
        assert item.source.confidence in CONFIDENCE, item.path
        assert item.source.confidence != "U", item.path


def test_cited_works__all_presets__name_every_work_and_leave_none_unexplained() -> None:
    texts = [item.source.text for name in systems.names() for item in sources(systems.get(name))]
    assert set(cited_works(texts)) == set(WORKS)
    assert not [text for text in texts if "SEED" in text]


def test_sources__value_changed_by_user__says_so() -> None:
    system = systems.bow().evolve(ipu={"clock_hz": 2e9})
    found = {item.path: item for item in sources(system)}
    assert found["ipu.clock_hz"].source.confidence == "U"
    assert found["ipu.num_tiles"].source.confidence == "S"
    assert found["ipu.clock_hz"].unit == "Hz"


def test_sources__value_with_a_cited_default_changed_by_user__says_so() -> None:
    changed = systems.bow_2000().evolve(host={"packet_to_tile_bytes": 512}).host
    assert changed.source_of("packet_to_tile_bytes").confidence == "U"
    assert changed.source_of("packet_to_host_bytes").confidence == "S"


def test_sources__field_of_a_part__has_its_meaning() -> None:
    found = {item.path: item.meaning for item in sources(systems.bow_2000())}
    assert found["host.packet_to_tile_bytes"] == "Largest packet from host to tile."


def test_evolve__part_that_may_be_absent__is_no_text() -> None:
    with pytest.raises(MachineError, match="gateway = 'fast': must be a table of GatewayLinks's fields"):
        systems.bow_2000().evolve(gateway="fast")


def test_get__any_spelling__finds_the_preset() -> None:
    assert systems.get("Bow_2000") is systems.bow_2000()
    assert systems.resolve(systems.m2000()) is systems.m2000()
    assert systems.resolve("bow-2000:1") == systems.bow_2000().with_ipus(1)


def test_get__typo__names_the_nearest() -> None:
    with pytest.raises(MachineError, match=r"no system is called 'bow-200'\n  try      did you mean 'bow-2000'\?"):
        systems.get("bow-200")


def test_get__bad_ipu_count__says_what_belongs_there() -> None:
    with pytest.raises(MachineError, match="after the colon comes a number of IPUs"):
        systems.get("bow-2000:two")
    with pytest.raises(MachineError, match=r"System\.num_ipus = 0: must be above 0"):
        systems.get("bow-2000:0")


def test_with_ipus__twice__keeps_the_base_name() -> None:
    system = systems.bow_2000().with_ipus(2).with_ipus(1)
    assert (system.name, system.num_tiles) == ("bow-2000:1", 1472)


def test_system__equal_parts__is_hashable_and_equal() -> None:
    again = systems.bow_2000().evolve(num_ipus=4)
    assert again == systems.bow_2000()
    assert hash(again) == hash(systems.bow_2000())


def test_evolve__nested_mapping__changes_only_that_field() -> None:
    system = systems.bow().evolve(name="mine", ipu={"num_tiles": 10, "tile": {"total_bytes": 1 << 20}})
    assert (system.num_tiles, system.ipu.tile.total_bytes) == (10, 1 << 20)
    assert system.ipu.exchange == systems.bow().ipu.exchange


def _clock(system: System) -> tuple[object, str, str]:
    found = next(item for item in sources(system) if item.path == "ipu.clock_hz")
    return found.value, found.source.confidence, found.source.text


def test_evolve__value_with_its_source__has_both() -> None:
    assert _clock(systems.bow().evolve(ipu={"clock_hz": stated(2e9, "data sheet")})) == (2e9, "S", "data sheet")
    assert systems.bow().evolve(num_ipus=2).source_of("num_ipus").confidence == "U"


def test_load__table_of_sources__says_where_values_are_from(tmp_path: Path) -> None:
    text = 'base = "bow"\n[ipu]\nclock_hz = 2e9\ncited = { clock_hz = "S: data sheet" }\n'
    assert _clock(systems.load(describe(tmp_path, "a.toml", text))) == (2e9, "S", "data sheet")


def test_evolve__part_that_was_absent__is_built_from_its_table() -> None:
    system = systems.c600().evolve(dram={"bytes": 10**9, "bytes_per_second": 1e10, "ipus_per_dram": 1})
    assert system.dram_bytes == 10**9


def test_evolve__new_matrix_unit_modes__are_built_from_their_tables() -> None:
    mode = {"input": "f8", "partials": "f32", "num_units": 16, "weights_per_unit": 32, "core_cycles": 2}
    amp = systems.c600().evolve(ipu={"amp": {"modes": [mode]}}).ipu.amp
    assert amp.mode("f8", "f32").macs_per_cycle == 256


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"ipu": {"num_tile": 3}}, "Ipu has no field 'num_tile'\n  try      did you mean 'num_tiles'?"),
        ({"ipu": {"num_tiles": -3}}, "Ipu.num_tiles = -3: must be above 0"),
        ({"ipu": {"num_tiles": 1.5}}, "Ipu.num_tiles = 1.5: must be a whole number"),
        ({"ipu": {"clock_hz": float("nan")}}, "Ipu.clock_hz = nan: must be a finite number"),
        ({"ipu": {"clock_hz": "fast"}}, "Ipu.clock_hz = 'fast': must be a finite number"),
        ({"ipu": {"tile": {"plain_bytes": 1 << 30}}}, "must be at most total_bytes = 638,976"),
        ({"ipu": {"tile": {"element_bytes": 1000}}}, "TileMemory.element_bytes = 1,000: must be a power of two"),
        ({"ipu": {"exchange": {"route_mean_cycles": 1}}}, "must lie between route_min_cycles = 18"),
        ({"ipu": {"exchange": {"pair_bytes_per_cycle": 2}}}, "must be at least bytes_per_cycle = 4"),
        ({"ipu_links": {"efficiency_proportion": 1.5}}, "IpuLinks.efficiency_proportion = 1.5: must be at most 1"),
        ({"ipu_links": {"topology": "ring"}}, "must be one of none, pair, ladder, torus"),
        ({"num_ipus": {"a": 1}}, "System.num_ipus = {'a': 1}: must be a finite number"),
        ({"ipu": 3}, "System.ipu = 3: must be a table of Ipu's fields"),
        ({"name": 3}, "System.name = 3: must be a name"),
        ({"gateway": {"bytes_per_second": 1e9}}, "GatewayLinks needs ipus_per_machine too"),
        ({"ipu": {"amp": {"modes": [{"input": "f8"}]}}}, "AmpMode needs partials, num_units"),
    ],
)
def test_evolve__impossible_value__names_field_value_and_allowed(changes: dict[str, object], text: str) -> None:
    with pytest.raises(MachineError) as caught:
        systems.bow().evolve(**changes)
    assert text in str(caught.value)


def test_system__several_ipus_without_links__is_refused() -> None:
    with pytest.raises(MachineError, match=r"2 IPUs, but IpuLinks\.topology = 'none'"):
        systems.c600().with_ipus(2)


def test_replace__standard_dataclass_way__is_validated_too() -> None:
    with pytest.raises(MachineError, match=r"System\.num_ipus = -1"):
        replace(systems.bow(), num_ipus=-1)


def test_amp_mode__missing__lists_those_there_are() -> None:
    with pytest.raises(MachineError, match="no mode f8→f16\n  try      one of f16→f16, f16→f32, f32→f32"):
        systems.bow().peak_flops("f8", "f16")


def describe(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_load__toml_with_overrides__gives_the_system(tmp_path: Path) -> None:
    path = describe(tmp_path, "small.toml", 'base = "bow-2000"\nnum_ipus = 1\n[ipu]\nnum_tiles = 64\n')
    system = systems.load(path)
    assert isinstance(system, System)
    assert (system.name, system.num_tiles) == ("small", 64)
    assert systems.resolve(str(path)) == system


def test_load__json__gives_the_same(tmp_path: Path) -> None:
    toml = describe(tmp_path, "a.toml", 'name = "x"\nbase = "gc200"\n[ipu.tile]\ntotal_bytes = 700000\n')
    json = describe(tmp_path, "a.json", '{"name": "x", "base": "gc200", "ipu": {"tile": {"total_bytes": 700000}}}')
    assert systems.load(toml) == systems.load(json)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "num_ipus = 1\n", "no base system is named"),
        ("a.toml", 'base = "bow"\n[ipu]\nclok_hz = 1\n', "did you mean 'clock_hz'?"),
        ("a.toml", "base = \n", "not a well-formed system description"),
        ("a.json", "{", "line 1 column 2"),
        ("a.json", "[1]", "not a list"),
        ("a.toml", 'base = "bowl"\n', "did you mean 'bow'?"),
        ("a.toml", 'base = "bow"\ncited = { num_ipus = "S: sheet" }\n', "System.cited = {'num_ipus': 'S: sheet'}"),
        ("a.toml", 'base = "bow"\n[ipu]\ncited = 3\n', "Ipu.cited = 3"),
    ],
)
def test_load__bad_file__names_file_and_fault(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = describe(tmp_path, name, text)
    with pytest.raises(MachineError) as caught:
        systems.load(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_load__missing_file__says_so() -> None:
    with pytest.raises(MachineError, match=r"nowhere\.toml: No such file"):
        systems.load("nowhere.toml")


def test_figures__bow_2000__are_plain_data() -> None:
    figures = systems.bow_2000().figures()
    assert figures["num_tiles"] == 5888
    assert all(isinstance(value, (int, float, str)) for value in figures.values())


def test_named_functions__each__give_their_preset() -> None:
    assert [f().name for f in (systems.gc2, systems.c2, systems.c600, systems.gc200, systems.bow)] == [
        "gc2",
        "c2",
        "c600",
        "gc200",
        "bow",
    ]
    assert (systems.pod(16).name, systems.bow_pod(64).name) == ("pod16", "bow-pod64")


def test_rearrange__piece_widths__pick_the_published_rates() -> None:
    rearrange = systems.bow().ipu.rearrange
    assert [rearrange.cycles_per_kib(n) for n in (16, 4, 2)] == [451, 3200, 5271]
