"""Target of plans: the CPU that runs them, as far as they depend on it."""

from __future__ import annotations

from dataclasses import dataclass

from abele.kernels.routines.costs import ProductCosts, product_costs
from abele.llvm.host import LINE_BYTES, cache_bytes, host_cpu, last_cache_bytes, near_cache_ways
from abele.numerics import ElementType

FAR_BYTES = 2048
"""Rows at least so far apart are not prefetched across: the next is in another page, or nearly."""
LONG_ROW = 16
"""Lines from which on a row has an odd number of them: one more line is little, and rows an even number of lines apart
share a part of the places of a cache. Of rows 4 KiB apart all begin at the same place of a usual first-level cache."""


@dataclass(frozen=True)
class HostTarget:
    """A CPU as the planner sees it.

    Attributes:
        lanes: Lanes of a vector of f32.
        registers: Vector registers.
        products: Costs of matrix products; None: products run as loops like everything else.
        far_bytes: Bytes of the last cache.
        near_ways: Ways of the first-level data cache.
        way_bytes: Bytes of one way.
        own_bytes: Bytes of the second-level cache of a core.
    """

    lanes: int
    registers: int = 32
    products: ProductCosts | None = None
    far_bytes: int = 1 << 25
    near_ways: int = 8
    way_bytes: int = 1 << 12
    own_bytes: int = 1 << 20

    @property
    def near_bytes(self) -> int:
        """Bytes of the first-level data cache."""
        return self.near_ways * self.way_bytes

    @property
    def embeds_broadcasts(self) -> bool:
        """True if a multiply-add takes one element for all lanes by itself, as those of AVX-512 and AArch64 do."""
        return self.registers > 16

    @property
    def accumulators(self) -> int:
        """Registers that accumulators may take; the others hold operands on their way."""
        return self.registers - 4


def host_target() -> HostTarget:
    """The CPU of this process."""
    cpu = host_cpu()
    lanes, registers = cpu.vector_bytes // 4, cpu.vector_registers
    ways, (near, own) = near_cache_ways(), cache_bytes()
    caches = (last_cache_bytes(), ways, near // ways, own)
    products = product_costs(lanes, registers, pairs=cpu.multiplies_bf16_pairs)
    return HostTarget(lanes, registers, products, *caches)


def row_length(elements: int, dtype: ElementType) -> int:
    """Elements between rows of ``elements``: long ones an odd number of lines apart, whatever they are read with.

    Rows of 1,024 elements of f32 begin 1,040 elements apart.
    """
    lines, rest = divmod(elements * dtype.bytes, LINE_BYTES)
    return elements if rest or lines % 2 or lines < LONG_ROW else elements + LINE_BYTES // dtype.bytes
