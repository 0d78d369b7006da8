"""The choice of a product's routine rests on what this host measures."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from kernels_kit import form_after
from products_kit import linear

from abele.host_facts import UnsettledError, forget, rates
from abele.kernels import BoundKernel, Buffer, HostKernel, bind
from abele.kernels.nest.ir import load, nest, select, store
from abele.kernels.plan import measure_products
from abele.kernels.plan.measure_products import MeasuredRates, measured_target, product_calls
from abele.kernels.plan.passes import run_passes
from abele.kernels.plan.product_table import chosen_way, measured_host, product_classes
from abele.kernels.products.schedule import ProductSchedule
from abele.kernels.routines import costs
from abele.kernels.routines.blocking import blocking
from abele.kernels.routines.costs import VARIABLE, ProductCosts
from abele.kernels.routines.multiply import MatrixLibrary
from abele.kernels.routines.product_class import POINTS, TRAITS, ProductClass
from abele.kernels.target import HostTarget
from abele.numerics import f32

SIZES = blocking(16, 32, 1 << 15, 1 << 20)
LIBRARY = MatrixLibrary("mkl", "1", 1, 1)


class Rates:
    """Rates that are made up: a share for each way, or None; notes what it was asked."""

    def __init__(self, passing: float | None = 0.0, spreading: float = 0.0, **shares: float | None) -> None:
        self.found, self.asked, self.handed, self.spread = shares, [], passing, spreading

    def shares(self, way: str, of: ProductClass) -> tuple[float, ...] | None:
        self.asked.append((way, of))
        share = self.found[way]
        return None if share is None else (share,) * len(POINTS)

    def passing(self) -> float | None:
        return self.handed

    def spreading(self) -> float | None:
        return self.spread


def way(
    rates: Rates, shape=(512, 512, 512), *, with_relu: bool = False, library: MatrixLibrary | None = None, **orders: str
) -> str:
    """Way by which a product of ``shape`` runs."""
    target = HostTarget(16, products=ProductCosts(SIZES, rates=rates, library=library))
    kernel = linear(*shape, **orders)
    buffers = [Buffer(n, s, t, True, f"b{n}") for n, (s, t) in enumerate(zip(kernel.shapes, kernel.types, strict=True))]
    if with_relu:
        buffers[2] = replace(buffers[2], pinned=False)
    calls = [BoundKernel(kernel, tuple(map(bind, buffers)), "p")]
    if with_relu:
        buffers.append(Buffer(3, kernel.shapes[2], f32, True, "b3"))
        value, extents = load(0, "i", "j"), dict(zip("ij", shape, strict=False))
        relu = nest(extents, store(1, ("i", "j"), select(value > 0.0, value, 0.0)))
        calls.append(
            BoundKernel(
                HostKernel((kernel.shapes[2],) * 2, (f32,) * 2, 1, 1, (relu,)), tuple(map(bind, buffers[2:])), "r"
            )
        )
    schedule = form_after("choose_schedules", buffers, calls, target).leaves[0].functions[0].schedule
    if not isinstance(schedule, ProductSchedule):
        return "loops"
    return schedule.library.name if schedule.library is not None else "packed"


@pytest.mark.parametrize(("loops", "packed", "expected"), [(0.9, 0.5, "loops"), (0.5, 0.9, "packed")])
def test_choice__of_our_own_ways__is_the_faster(loops: float, packed: float, expected: str) -> None:
    assert way(Rates(loops=loops, packed=packed)) == expected


@pytest.mark.parametrize(("mkl", "expected"), [(0.52, "loops"), (0.54, "mkl"), (None, "loops")])
def test_choice__of_a_library__wants_a_twentieth_more(mkl: float | None, expected: str) -> None:
    assert way(Rates(loops=0.51, packed=0.4, mkl=mkl), library=LIBRARY) == expected


def test_choice__without_the_library_that_was_measured__leaves_it_out() -> None:
    rates = Rates(loops=0.5, packed=0.4, mkl=0.9)
    assert way(rates) == "loops"
    assert {asked for asked, _ in rates.asked} == {"loops", "packed"}


@pytest.mark.parametrize(("depth", "expected"), [(512, "packed"), (16, "loops")])
def test_choice__with_a_relu__counts_that_results_pass_through_a_cache(depth: int, expected: str) -> None:
    found = Rates(loops=0.7, packed=0.8, passing=4.0)
    assert way(found, (512, 512, depth), with_relu=True) == expected
    assert way(found, (512, 512, depth)) == "packed"


@pytest.mark.parametrize(("left", "left_turned"), [("ik", False), ("ki", True)])
@pytest.mark.parametrize(("right", "right_turned"), [("kj", False), ("jk", True)])
@pytest.mark.parametrize(("extent", "is_crowded"), [(1024, True), (1000, False)])
@pytest.mark.parametrize(("rows", "is_crowded_left"), [(2048, True), (96, False)])
def test_choice__of_any_layout__goes_by_its_class(
    left: str,
    left_turned: bool,
    right: str,
    right_turned: bool,
    extent: int,
    is_crowded: bool,
    rows: int,
    is_crowded_left: bool,
) -> None:
    rates = Rates(loops=0.5, packed=0.9)
    assert way(rates, (rows, extent, extent), left=left, right=right) == "packed"
    expected = ProductClass(
        left_turned, right_turned, is_crowded=is_crowded, is_left_crowded=left_turned and is_crowded_left
    )
    assert {of for _, of in rates.asked} == {expected}


@pytest.mark.parametrize(
    ("shape", "of", "in_blocks"),
    [
        ((96, 1500, 1500), ProductClass(right_in_blocks=True), True),
        ((96, 1500, 1500), ProductClass(right_turned=True, right_in_blocks=True), False),
        ((1504, 500, 960), ProductClass(left_in_blocks=True), False),
        ((1504, 500, 960), ProductClass(left_turned=True, left_in_blocks=True, right_in_blocks=True), False),
    ],
)
@pytest.mark.parametrize("spreading", [0.0, 1e4])
def test_choice__of_blocks__goes_by_their_class_and_by_accesses_to_results(shape, of, in_blocks, spreading) -> None:
    rates = Rates(loops=0.9, packed=0.5, spreading=spreading)
    buffers, calls = product_calls(of, shape, in_blocks=in_blocks)
    target = HostTarget(16, products=ProductCosts(SIZES, rates=rates))
    schedule = form_after("choose_schedules", buffers, calls, target).leaves[-1].functions[0].schedule
    assert isinstance(schedule, ProductSchedule) == (in_blocks and spreading > 0)
    assert {asked for _, asked in rates.asked} == {of}


@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 768, 768), (8, 8, 8)])
def test_choice__that_is_plain_on_any_host__measures_nothing(shape: tuple[int, int, int]) -> None:
    rates = Rates(loops=0.1, packed=0.9)
    assert way(rates, shape) == "loops"
    assert not rates.asked


@pytest.mark.parametrize("unknown", ["loops", "packed", "passing"])
def test_choice__on_a_machine_without_rest__is_the_usual_one(unknown: str) -> None:
    found = {"loops": 0.1, "packed": 0.9, "mkl": 1.0, "passing": 1.0} | {unknown: None}
    assert way(Rates(**found), library=LIBRARY, with_relu=True) == "loops"


def test_choice__that_is_forced__measures_nothing() -> None:
    rates = Rates(loops=0.9, packed=0.1)
    target = HostTarget(16, products=ProductCosts(SIZES, rates=rates, forced=True))
    assert chosen_way(ProductClass(), (8, 9, 10), target) == "packed"
    assert not rates.asked


# Measuring

SMALL = ((8, 8, 12), (20, 30, 40))


@pytest.fixture
def fresh(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """A host of which nothing is known, and two small points."""
    monkeypatch.setenv("ABELE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(rates, "_known", {})
    monkeypatch.setattr(measure_products, "_unsettled", set())
    monkeypatch.setattr(measure_products, "POINTS", SMALL)
    monkeypatch.setattr(measure_products, "CORNERS", SMALL)
    return tmp_path / "cache"


@pytest.mark.parametrize("of", [ProductClass(), *TRAITS])
@pytest.mark.parametrize("asked", ["loops", "packed"])
def test_shares__measured_here__are_within_reason_and_kept(fresh, of: ProductClass, asked: str) -> None:
    found = MeasuredRates(run_passes).measured(asked, of)
    assert found is not None
    assert len(found) == len(SMALL)
    assert all(1e-4 < share < 2.0 for share in found)
    rates._known.clear()
    # Plans that could not be made would show if it were measured again.
    assert MeasuredRates(lambda *_, **__: None).measured(asked, of) == found
    assert len(list(fresh.glob(f"host/*/products-{asked}-{of.name}-*.json"))) == 1


def test_passing__measured_here__is_within_reason(fresh) -> None:
    found = MeasuredRates(run_passes).passing()
    assert found is not None
    assert 0 <= found < 500


def test_shares__of_a_machine_without_rest__are_not_kept_and_said_once(
    fresh, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    def swing(run, operations):
        tries.append(None)
        raise UnsettledError("the rate of multiply-adds swings by more than 15%")

    with monkeypatch.context() as busy, caplog.at_level(logging.WARNING, "abele"):
        busy.setattr(measure_products, "share_of_arithmetic", swing)
        for _ in range(2):
            for asked in ("loops", "packed"):
                assert MeasuredRates(run_passes).shares(asked, ProductClass()) is None
    assert len(tries) == 2
    assert [record.message.partition(",")[0] for record in caplog.records] == [
        "matrix products run as on a usual machine"
    ]
    assert not list(fresh.glob("host/*/products-*.json"))
    # When it is asked for, it is measured all the same.
    assert MeasuredRates(run_passes).shares("loops", ProductClass(), anew=True) is not None


@pytest.mark.parametrize("name", ["cache_bytes", "last_cache_bytes", "near_cache_ways", "code_digest"])
def test_shares__where_caches_or_code_are_others__are_measured_anew(
    fresh, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(MeasuredRates, "_shares", lambda *given, **__: [0.5] * len(given[3]))
    assert MeasuredRates(run_passes).shares("loops", ProductClass()) == (0.5, 0.5)
    monkeypatch.setattr(MeasuredRates, "_shares", lambda *given, **__: [0.25] * len(given[3]))
    assert MeasuredRates(run_passes).shares("loops", ProductClass()) == (0.5, 0.5)
    monkeypatch.setattr(measure_products, name, lambda *_: (1, 2))
    assert MeasuredRates(run_passes).shares("loops", ProductClass()) == (0.25, 0.25)


def test_shares__of_another_version_of_a_library__are_measured_anew(fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for version, share in (("1", 0.5), ("2", 0.25), ("1", 0.125)):
        monkeypatch.setattr(costs, "loaded_library", lambda version=version: MatrixLibrary("mkl", version, 1, 1))
        monkeypatch.setattr(MeasuredRates, "_shares", lambda *given, share=share, **__: [share] * len(given[3]))
        found.append([MeasuredRates(run_passes).shares(asked, ProductClass())[0] for asked in ("mkl", "loops")])
    assert found == [[0.5, 0.5], [0.25, 0.5], [0.5, 0.5]]


def test_shares__in_a_folder_that_cannot_be_written__are_known_to_this_process(
    fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh.write_text("a file where the folder should be")
    monkeypatch.setattr(MeasuredRates, "_shares", lambda *given, **__: [0.5] * len(given[3]))
    assert MeasuredRates(run_passes).shares("loops", ProductClass()) == (0.5, 0.5)
    monkeypatch.setattr(MeasuredRates, "_shares", lambda *given, **__: [0.25] * len(given[3]))
    assert MeasuredRates(run_passes).shares("loops", ProductClass()) == (0.5, 0.5)
    forget()
    assert MeasuredRates(run_passes).shares("loops", ProductClass()) == (0.25, 0.25)


def test_target__of_plans__measures_and_equals_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    first, second = (measured_target(lambda *_, **__: None) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first.products.rates is not None
    assert first.products != replace(first.products, rates=None)
    monkeypatch.setenv(VARIABLE, "loops")
    assert measured_target(lambda *_, **__: None).products is None
    monkeypatch.setenv(VARIABLE, "packed")
    assert measured_target(lambda *_, **__: None).products.rates is None


def test_classes__of_a_host__have_pairs_where_the_cpu_multiplies_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    target = measured_host()
    plain = replace(target, products=replace(target.products, pairs=None))
    paired = replace(target, products=replace(target.products, pairs=SIZES))
    assert len(product_classes(paired)) == len(product_classes(plain)) + 4 == 15
