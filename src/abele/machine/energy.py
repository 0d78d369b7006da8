"""Energy that arithmetic and traffic take.

Next to nothing of this is published: a slide has the energy of convolutions by type and orders of magnitude for kinds
of memory, and cards have rated powers. The rest is guessed, with the range that a guess may be off by beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from abele.machine.source import constant, derived, guessed, stated
from abele.machine.spec import Spec

_SLIDE = "GC-ESO, kernel power: die level, dynamic, synthetic data, convolution"
_MEMORY_SLIDE = "GC-ESO, more memory, per logic die the size of a reticle"


@dataclass(frozen=True, kw_only=True)
class Energy(Spec):
    """Dynamic energy of a floating-point operation and of a byte, and the power that a chip is rated for.

    Attributes:
        f8_joules_per_flop: Products on the matrix unit, inputs in 8 bits; memory traffic included, as below.
        f16_joules_per_flop: The same with inputs and partial sums in f16.
        f16_f32_joules_per_flop: The same with inputs in f16, partial sums in f32.
        f32_joules_per_flop: The same with everything in f32.
        least_data_proportion: Energy of real data as a proportion of that of synthetic data, at least.
        most_data_proportion: The same, at most.
        vector_joules_per_flop: Arithmetic of vectors and scalars, of either type, without memory traffic.
        least_vector_joules_per_flop: The least that it may be.
        most_vector_joules_per_flop: The most that it may be.
        sram_joules_per_byte: A byte read from or written to a tile's memory.
        most_sram_joules_per_byte: The most that it may be.
        wire_joules_per_byte_millimetre: A byte on its way over the die.
        exchange_millimetres: The mean way of a byte between tiles.
        most_exchange_joules_per_byte: A byte from one corner of a die to the other.
        link_joules_per_byte: A byte over a link between chips, or to the host.
        least_link_joules_per_byte: The least that it may be.
        most_link_joules_per_byte: The most that it may be.
        dram_joules_per_byte: A byte read from or written to streaming memory, or the host's.
        rated_watts: Rated power of one chip with its share of the card or machine around it.
    """

    f8_joules_per_flop: float = constant(derived(0.5e-12, _SLIDE + "; about half of f16"))
    f16_joules_per_flop: float = constant(stated(1.0e-12, _SLIDE))
    f16_f32_joules_per_flop: float = constant(stated(1.3e-12, _SLIDE))
    f32_joules_per_flop: float = constant(stated(2.5e-12, _SLIDE))
    least_data_proportion: float = constant(
        derived(1 / 2, "GC-ESO, kernel power: real data is typically 1/3 to 1/2 less energetic")
    )
    most_data_proportion: float = constant(
        derived(2 / 3, "GC-ESO, kernel power: real data is typically 1/3 to 1/2 less energetic")
    )
    vector_joules_per_flop: float = constant(
        guessed(10e-12, "no source; the geometric mean of its bounds is 9 pJ: one instruction does 1 to 8 operations")
    )
    least_vector_joules_per_flop: float = constant(
        derived(2.5e-12, "no less than an f32 operation of the matrix unit, where an instruction does 16 and more")
    )
    most_vector_joules_per_flop: float = constant(
        derived(31e-12, "344 W / (1472 tiles x 4 flops x 1.85 GHz): all the power of a Bow for its f32 vector units")
    )
    sram_joules_per_byte: float = constant(guessed(0.3e-12, _MEMORY_SLIDE + ": << 1 pJ/B for SRAM over half the die"))
    most_sram_joules_per_byte: float = constant(stated(1e-12, _MEMORY_SLIDE + ": << 1 pJ/B for SRAM over half the die"))
    wire_joules_per_byte_millimetre: float = constant(stated(0.5e-12, _MEMORY_SLIDE + ": +0.5 pJ/B/mm on die"))
    exchange_millimetres: float = constant(
        derived(
            19.1,
            "823 mm² (Mk2, §3) is a square of 28.7 mm, and the mean way between two of its points, along "
            "rows and columns, is 2/3 of that",
        )
    )
    most_exchange_joules_per_byte: float = constant(
        stated(30e-12, _MEMORY_SLIDE + ": at most 30 pJ/B for the half perimeter")
    )
    link_joules_per_byte: float = constant(guessed(40e-12, "no source; 5 pJ a bit, as links of 16 to 32 Gbit/s take"))
    least_link_joules_per_byte: float = constant(guessed(8e-12, "no source; 1 pJ a bit"))
    most_link_joules_per_byte: float = constant(guessed(80e-12, "no source; 10 pJ a bit"))
    dram_joules_per_byte: float = constant(
        guessed(300e-12, _MEMORY_SLIDE + ": 300 pJ/B for DDR5 on DIMMs; machines and hosts have DDR4")
    )
    rated_watts: float = constant(
        guessed(344.0, "Bow-2000 with four IPUs, 1.25 to 1.5 kW by the press (§3), everything in the machine included")
    )


@dataclass(frozen=True, kw_only=True)
class MemoryKind:
    """A kind of memory beside a logic die the size of a reticle.

    Attributes:
        name: Name of the memory.
        bytes: Capacity beside the die, or on half of it.
        bytes_per_second: Bandwidth.
        joules_per_byte: Energy of a byte, without its way over the die.
        relative_cost: Price of a byte, SRAM being 1 as the slide has it.
    """

    name: str
    bytes: float
    bytes_per_second: float
    joules_per_byte: float
    relative_cost: float


MEMORY_KINDS = (
    MemoryKind(name="SRAM", bytes=1e9, bytes_per_second=50e12, joules_per_byte=1e-12, relative_cost=1),
    MemoryKind(name="HBM3", bytes=96e9, bytes_per_second=3e12, joules_per_byte=40e-12, relative_cost=4),
    MemoryKind(name="LPDDR5", bytes=512e9, bytes_per_second=800e9, joules_per_byte=50e-12, relative_cost=1),
    MemoryKind(name="DDR5", bytes=1536e9, bytes_per_second=500e9, joules_per_byte=300e-12, relative_cost=1.25),
)
"""Kinds of memory to choose from.

SRAM over half the die (much more than 50 TB/s, much less than 1 pJ/B, which stand here as bounds), six stacks of
HBM3-4800, sixteen of LPDDR5-6400, twelve channels of DDR5-5600 DIMMs.

Source: GC-ESO, AI accelerators will need more memory.
"""
