"""The table of measured rates of matrix products, measured anew for readers, with the way that plans take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from abele.errors import InvalidOptionError
from abele.host_facts import machine_rates
from abele.kernels.plan.measure_products import MeasuredRates, measured_target
from abele.kernels.plan.passes import run_passes
from abele.kernels.products.schedule import ProductSchedule
from abele.kernels.routines.costs import LOOPS, PACKED, VARIABLE
from abele.kernels.routines.product_class import CLASSES, TRAITS, ProductClass
from abele.kernels.target import HostTarget


@dataclass(frozen=True)
class TableRow:
    """A product of the table.

    Attributes:
        of: Its class.
        shape: Rows, columns and summed elements.
        flops_per_second: Rate of one thread by way; empty where the machine did not come to rest.
        way: Way that plans take.
    """

    of: ProductClass
    shape: tuple[int, int, int]
    flops_per_second: dict[str, float]
    way: str


def measured_host() -> HostTarget:
    """CPU of this process, with products chosen by measurements on it.

    Raises:
        InvalidOptionError: ``ABELE_PRODUCTS`` leaves no choice.
    """
    target = measured_target(run_passes)
    if target.products is None or target.products.rates is None:
        raise InvalidOptionError(
            f"{VARIABLE} leaves no choice between ways to run products, and so nothing to measure",
            remedy="leave it unset",
        )
    return target


def product_classes(target: HostTarget) -> list[ProductClass]:
    """Classes that a host measures: of f32, of bf16 where the CPU multiplies pairs of it, and of single traits."""
    with_pairs = target.products is not None and target.products.pairs is not None
    bare = [replace(of, pairs=pairs) for pairs in (False, True)[: 1 + with_pairs] for of in CLASSES]
    return [*bare, *TRAITS]


def measured_classes(target: HostTarget) -> Iterator[tuple[ProductClass, Iterator[TableRow]]]:
    """Rows of each class, measured anew as they are asked for; a class's rows follow each other."""
    MeasuredRates(run_passes).passing(anew=True)
    MeasuredRates(run_passes).spreading(anew=True)
    for of in product_classes(target):
        yield of, _rows(of, target)


def _rows(of: ProductClass, target: HostTarget) -> Iterator[TableRow]:
    costs, rates = target.products, MeasuredRates(run_passes)
    assert costs is not None
    # Libraries take neither pairs nor blocks.
    is_apart = of.pairs or of.left_in_blocks or of.right_in_blocks
    ways = [LOOPS, PACKED, *([costs.library.name] if costs.library is not None and not is_apart else [])]
    shares = {way: rates.measured(way, of, anew=True) for way in ways}
    arithmetic = machine_rates().flops_per_second
    for number, shape in enumerate(of.points):
        found = {way: arithmetic * share[number] for way, share in shares.items() if share is not None}
        yield TableRow(of, shape, found, chosen_way(of, shape, target))


def chosen_way(of: ProductClass, shape: tuple[int, int, int], target: HostTarget, *, with_relu: bool = False) -> str:
    """Way that plans for ``target`` run a product of a class, alone or with a ReLU of its results."""
    _, program = MeasuredRates(run_passes).scheduled(of, shape, target, with_relu=with_relu)
    for function in (function for leaf in program.leaves for function in leaf.functions):
        if isinstance(function.schedule, ProductSchedule):
            return function.schedule.library.name if function.schedule.library is not None else PACKED
    return LOOPS
