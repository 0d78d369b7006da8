"""Hosts: presets, files, sources, and every error about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from abele.errors import MachineError
from abele.machine import CONFIDENCE, HostComputer, described, hosts, sources, systems
from abele.machine.spec import Spec


@pytest.mark.parametrize("name", hosts.names())
def test_sources__every_host__covers_every_number(name: str) -> None:
    found = sources(hosts.get(name))
    assert len(found) == 8
    assert all(item.source.text and item.source.confidence in set(CONFIDENCE) - {"U"} for item in found)
    assert {item.unit for item in found} == {"", "B/s", "s"}


def test_resolve__name_value_or_nothing__is_a_host() -> None:
    host = hosts.get("EPYC_7742")
    assert hosts.resolve("epyc-7742") is hosts.resolve(host) is hosts.resolve(None) is host
    with pytest.raises(MachineError, match="3 is no host"):
        hosts.resolve(3)  # type: ignore[arg-type]
    with pytest.raises(MachineError, match=r"no host is called 'epyc-7741'\n  try      did you mean 'epyc-7742'\?"):
        hosts.resolve("epyc-7741")


def test_load__file_after_a_preset__changes_what_it_says_and_cites(tmp_path: Path) -> None:
    path = tmp_path / "desk.toml"
    path.write_text('base = "epyc-7742"\nnum_cores = 6\n')
    host = hosts.resolve(path)
    assert (host.name, host.num_cores, host.copy_bytes_per_second) == ("desk", 6, 8e9)
    assert host.source_of("num_cores").confidence == "U"
    path.write_text("num_cores = 6\n")
    with pytest.raises(MachineError, match=r"no base host is named\n  try      begin the file with base"):
        hosts.load(path)
    path.write_text('base = "epyc-7742"\ncopy_bytes_per_second = 1e-9\n')
    with pytest.raises(MachineError, match=r"HostComputer\.copy_bytes_per_second = 1e-09: must be at least 1 B/s"):
        hosts.load(path)
    path.write_text('base = "epyc-7742"\nnum_cores = 0\n')
    with pytest.raises(MachineError, match=r"HostComputer\.num_cores = 0: must be above 0\n  at       .*desk\.toml"):
        hosts.load(path)


@pytest.mark.parametrize("spec", [hosts.get("epyc-7742"), systems.get("bow-pod256"), systems.get("c600")])
def test_described__any_part__comes_back_with_its_sources(spec: Spec) -> None:
    back = type(spec).of(described(spec))
    assert back == spec
    assert sources(back) == sources(spec)


@pytest.mark.parametrize("cited", [3, {"num_cores": "somewhere"}, {"num_cores": ["x", "S"]}, {"cores": "S: x"}])
def test_of__sources_that_are_none__are_named(cited: object) -> None:
    table = {**described(hosts.get("epyc-7742")), "cited": cited}
    with pytest.raises(MachineError, match=r"HostComputer\.cited = .*: says of fields"):
        HostComputer.of(table)


def test_of__missing_field__is_named() -> None:
    with pytest.raises(MachineError, match="HostComputer needs title, num_cores, memory_bytes_per_second too"):
        HostComputer.of({"name": "x"})
