"""Target: every getter from the system's data, against published figures."""

from __future__ import annotations

import pytest

from abele.errors import MachineError
from abele.machine import systems
from abele.poplar import Target, TargetType


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def matrix_vector_cycles(target: Target, rows: int, columns: int, parts: int) -> int:
    """The matrix-vector optimisation tutorial's estimate, from what a program can ask its target alone."""
    tiles, workers = target.getNumTiles(), target.getNumWorkerContexts()
    per_cycle, width, size = (
        target.getExchangeBytesPerCycle(),
        target.getVectorWidth("float"),
        target.getTypeSize("float"),
    )
    part = ceil_div(columns, parts)
    vertices = max(ceil_div(rows * parts, tiles), 1)
    compute = ceil_div(vertices, workers) * workers * (5 + (part + 1) // width)
    exchange = ceil_div(vertices, rows) * part * size // per_cycle
    reductions = max(ceil_div(rows, tiles), 1)
    reduce_compute = ceil_div(reductions, workers) * workers * (5 + (parts + 1) // width)
    return compute + exchange + reduce_compute + reductions * parts * size // per_cycle


@pytest.mark.parametrize(
    ("architecture", "worst", "best", "best_parts"), [("ipu2", 53_807, 3_996, 7), ("ipu1", 64_373, 4_751, 5)]
)
def test_target__matrix_vector_cost_function__gives_the_published_extremes(
    architecture: str, worst: int, best: int, best_parts: int
) -> None:
    target = Target.createIPUTarget(1, architecture)
    costs = [matrix_vector_cycles(target, 10_000, 1_000, parts) for parts in range(1, 1000)]
    assert (max(costs), min(costs)) == (worst, best)
    assert costs.index(best) + 1 == best_parts


def test_target__second_generation__has_the_documented_constants() -> None:
    target = Target.createIPUTarget(2, "ipu2")
    assert (target.getNumTiles(), target.getTilesPerIPU(), target.getNumIPUs()) == (2944, 1472, 2)
    assert (target.getVectorWidth("float"), target.getVectorWidth("half")) == (2, 4)
    assert (target.getFloatVectorWidth(), target.getHalfVectorWidth()) == (2, 4)
    assert (target.getRptCountMax(), target.getDataPathWidth(), target.getNumStrideBits()) == (0xFFF, 64, 10)
    assert target.getAtomicStoreGranularity() in (4, 8)
    assert target.getBytesPerTile() == 624 * 1024
    assert target.getBytesPerIPU() == 1472 * 624 * 1024
    assert (target.getTilesPerSharedExchangeBus(), target.supportsExchangeBusSharing()) == (2, True)
    assert (target.getMemcpyBytesPerCycle(), target.getMaxIPUSyncDelay()) == (8, 126)
    assert target.getGlobalSyncCycles() > 0
    assert len(target.getMemoryElementOffsets()) == 39
    assert target.getMemoryElementOffsets()[target.getInterleavedMemoryElementIndex()] == 0x34000
    assert (target.getTargetArchString(), target.getTargetType(), target.isHW()) == ("ipu2", TargetType.IPU, False)


def test_target__conv_units__are_those_of_the_matrix_unit() -> None:
    target = Target.createIPUTarget(1, "ipu2")
    assert target.getFp16InFp16OutConvUnitsPerTile() == 16
    assert target.getFp16InFp32OutConvUnitsPerTile() == 8
    assert target.getFp32InFp32OutConvUnitsPerTile() == 16
    assert target.getFp8InFp16OutConvUnitsPerTile() == 0
    assert Target.createIPUTarget(1, "ipu21").getFp8InFp16OutConvUnitsPerTile() == 16
    assert (target.getWeightsPerConvUnit(False), target.getWeightsPerConvUnit(True)) == (16, 8)
    assert (target.getConvUnitInputLoadElemsPerCycle(False), target.getConvUnitInputLoadElemsPerCycle(True)) == (4, 2)
    assert target.getConvUnitCoeffLoadBytesPerCycle() == 16
    assert target.getConvUnitMaxPipelineDepth() > 0
    assert target.getNumConvUnits("half", "float") == 8


def test_target__attributes__say_the_same_as_the_getters() -> None:
    target = Target(systems.bow_2000())
    assert target.num_tiles == target.getNumTiles() == 4 * 1472
    assert target.workers == target.getNumWorkerContexts() == 6
    assert target.clock_hz == target.getTileClockFrequency() == 1.85e9
    assert target.type_size("half") == target.getTypeSize("half") == 2


def test_target__changed_system__is_what_the_getters_read() -> None:
    system = systems.bow().evolve(ipu={"num_tiles": 8, "data_path_bytes": 16, "max_repeats": 7})
    target = Target(system)
    assert (target.getNumTiles(), target.getVectorWidth("float"), target.getRptCountMax()) == (8, 4, 7)


def test_create_ipu_target__tiles_and_wrong_names__are_checked() -> None:
    assert Target.createIPUTarget(1, 4, "ipu1").getNumTiles() == 4
    with pytest.raises(MachineError, match=r"no IPU architecture is called 'ipu3'\n  try      did you mean 'ipu"):
        Target.createIPUTarget(1, "ipu3")
    with pytest.raises(MachineError, match="an ipu2 target of 5,000 tiles per IPU"):
        Target.createIPUTarget(1, 5000, "ipu2")


def test_create_cpu_target__is_one_tile_with_one_worker() -> None:
    target = Target.createCPUTarget()
    assert (target.getNumTiles(), target.getNumWorkerContexts()) == (1, 1)
    assert (target.getTargetType(), target.getTargetArchString()) == (TargetType.CPU, "cpu")
