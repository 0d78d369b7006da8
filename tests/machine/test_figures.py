"""Derived figures against the tables that the makers and others published."""

from __future__ import annotations

import math

import pytest

from abele.machine import System, systems
from abele.numerics import bf16, f16, f32, i32

TERA = 1e12


@pytest.mark.parametrize(
    ("name", "f16_tflops", "f32_tflops"),
    [("gc2", 124.5, 31.1), ("gc200", 250.0, 62.5), ("bow", 350.0, 87.0), ("c600", 280.0, 70.0)],
)
def test_peak_flops__each_chip__matches_brochure(name: str, f16_tflops: float, f32_tflops: float) -> None:
    system = systems.get(name)
    assert system.peak_flops("f16", "f16") / TERA == pytest.approx(f16_tflops, rel=0.011)
    assert system.peak_flops("f32", "f32") / TERA == pytest.approx(f32_tflops, rel=0.011)


def test_peak_flops__f16_with_f32_partials__is_half_on_mk2_and_full_on_mk1() -> None:
    for name, ratio in (("gc2", 1.0), ("gc200", 0.5), ("bow", 0.5)):
        system = systems.get(name)
        assert system.peak_flops("f16", "f32") == ratio * system.peak_flops("f16", "f16")


def test_peak_flops__f8_on_c600__is_560_tflops() -> None:
    assert systems.c600().peak_flops("f8", "f16") / TERA == pytest.approx(560, rel=0.011)


@pytest.mark.parametrize(
    ("name", "memory_tb", "exchange_tb", "mib"),
    [("gc2", 46.7, 7.8, 304), ("gc200", 47.0, 7.83, 897), ("bow", 65.4, 10.9, 897), ("c600", 53.0, 8.8, 897)],
)
def test_bandwidths__each_chip__match_table(name: str, memory_tb: float, exchange_tb: float, mib: int) -> None:
    ipu = systems.get(name).ipu
    assert ipu.memory_bytes_per_second / TERA == pytest.approx(memory_tb, rel=0.005)
    assert ipu.exchange_bytes_per_second / TERA == pytest.approx(exchange_tb, rel=0.005)
    assert ipu.memory_bytes / 2**20 == pytest.approx(mib, abs=0.5)


@pytest.mark.parametrize(
    ("name", "petaflops"),
    [("c2", 0.25), ("m2000", 1.0), ("bow-2000", 1.4), ("bow-pod64", 22.4), ("bow-pod1024", 358.4)],
)
def test_system_peak__as_sold__matches(name: str, petaflops: float) -> None:
    assert systems.get(name).peak_flops() / 1e15 == pytest.approx(petaflops, rel=0.011)


def test_system_memory__pods__match_table() -> None:
    assert systems.get("bow-pod64").memory_bytes / 1e9 == pytest.approx(58.9, rel=0.03)
    assert systems.get("bow-pod64").dram_bytes == 16 * 128 * 10**9
    assert systems.bow_2000().num_tiles == 4 * 1472


def test_global_sync__gc2__is_the_way_on_chips_over_edges_and_hops() -> None:
    sync, clock = systems.gc2().ipu.sync, systems.gc2().ipu.clock_hz
    on_chips_and_edges = sync.max_delay_cycles + 2 * sync.edge_seconds * clock
    for num_ipus, hops in ((2, 1), (4, 2), (8, 3), (16, 5), (64, 17)):
        # The IPUModel's latency of the sync network: 15 ns a hop, there and back.
        network = 2 * hops * 15e-9 * clock
        assert sync.global_cycles(num_ipus, clock) == math.ceil(on_chips_and_edges + network - 1e-6)
    assert sync.global_cycles(1, clock) == sync.on_chip_cycles


def test_global_sync__sixteen_gc2__is_what_poplars_target_says_within_a_sixth() -> None:
    # Target::getGlobalSyncCycles is 600; steps of a blur waited 501 to 642 cycles, a barrier of each chip included.
    sync = systems.gc2().ipu.sync
    found = sync.global_cycles(16, 1.6e9)
    assert found == pytest.approx(600, rel=1 / 6)
    assert 501 <= found + sync.on_chip_cycles <= 642


def test_vector_width__by_type__follows_the_data_path() -> None:
    ipu = systems.bow().ipu
    assert [ipu.vector_width(t) for t in (f32, f16, bf16, i32)] == [2, 4, 4, 1]


def test_host_bandwidth__one_and_many_ipus__is_bounded_by_port_and_by_shared_link() -> None:
    m2000 = systems.m2000()
    assert m2000.with_ipus(1).host_bytes_per_second == 12.5e9
    assert m2000.host_bytes_per_second == 12.5e9
    assert systems.get("pod16").host_bytes_per_second == 4 * 12.5e9


def matrix_vector_cycles(system: System, rows: int, columns: int, parts: int) -> int:
    """Cost function of Poplar's matrix-vector optimisation tutorial, from machine constants alone."""
    tiles, workers = system.num_tiles, system.ipu.num_workers
    per_cycle, width = system.ipu.exchange.bytes_per_cycle, system.ipu.vector_width(f32)
    part = -(-columns // parts)
    vertices = max(-(-rows * parts // tiles), 1)
    reductions = max(-(-rows // tiles), 1)
    compute = -(-vertices // workers) * workers * (5 + (part + 1) // width)
    exchange = -(-vertices // rows) * part * 4 // per_cycle
    reduce_compute = -(-reductions // workers) * workers * (5 + (parts + 1) // width)
    return compute + exchange + reduce_compute + reductions * parts * 4 // per_cycle


@pytest.mark.parametrize(
    ("name", "worst", "best", "best_parts"), [("gc200", 53_807, 3_996, 7), ("gc2", 64_373, 4_751, 5)]
)
def test_matrix_vector_cost__over_all_splits__gives_the_published_extremes(
    name: str, worst: int, best: int, best_parts: int
) -> None:
    costs = [matrix_vector_cycles(systems.get(name), 10_000, 1_000, parts) for parts in range(1, 1000)]
    assert (max(costs), min(costs)) == (worst, best)
    assert costs.index(best) + 1 == best_parts


def test_seconds__cycles_of_one_second__is_one() -> None:
    system = systems.bow()
    assert math.isclose(system.seconds(1.85e9), 1.0)
