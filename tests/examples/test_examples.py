"""The examples run and give what NumPy gives; their pages quote them truly."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PAGES = ROOT / "docs" / "examples"


def load(name: str) -> ModuleType:
    """The module of an example."""
    path = EXAMPLES / f"{name}.py"
    known = path.stem in sys.modules
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] if known else importlib.util.module_from_spec(spec)
    if not known:
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    return module


def test_custom_op__gated_unit_in_a_model__learns_a_product_as_pytorch_does() -> None:
    torch = pytest.importorskip("torch")
    module = load("poptorch/custom_op")
    model, x, y = module.Network(), torch.randn(6, 8), torch.randn(6, 1)
    twin = module.Network()
    twin.load_state_dict(model.state_dict())
    trained = module.poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    loss = trained(x, y)
    a, b = twin.first(x).chunk(2, 1)
    expected = torch.nn.functional.mse_loss(twin.last(torch.nn.functional.silu(a) * b), y)
    expected.backward()
    assert float(loss) == pytest.approx(expected.item(), rel=1e-5)
    moved = twin.first.weight - 0.1 * twin.first.weight.grad
    np.testing.assert_allclose(model.first.weight.detach(), moved.detach(), atol=1e-6)


def test_heat__small_plate_on_four_ipus__is_numpys() -> None:
    heat = load("heat")
    with heat.heat(block=(2, 3), steps=6) as engine:
        start = engine["plate"]
        engine.run()
        np.testing.assert_allclose(engine["plate"], heat.reference(start, 6), atol=1e-6)
        assert engine.report.target["num_ipus"] == 4
        assert engine.report.cycles().exchange > 0


def test_lattice_boltzmann__flow_around_a_disc__is_numpys_and_keeps_its_mass() -> None:
    module = load("lattice_boltzmann")
    solid = module.cylinder((24, 40))
    with module.flow(solid, steps=20, tile_grid=(4, 5)) as engine:
        engine.run()
        populations = engine["populations"]
    np.testing.assert_allclose(populations, module.reference(solid, 20), atol=1e-6)
    assert populations.sum() == pytest.approx(solid.size, rel=1e-5)
    assert module.velocity(populations)[1][1][solid == 0].mean() > 0


def test_spiking__state_in_the_vertices__fires_as_numpy_says() -> None:
    module = load("spiking")
    network = module.wiring(8832, synapses=8)
    raster = np.empty((30, 8832), np.uint8)
    with module.spiking(*network, steps=30) as engine:
        engine.connect("raster", raster)
        engine.run()
    np.testing.assert_array_equal(raster, module.reference(*network, steps=30))
    assert raster.any()


def test_smith_waterman__pairs_of_all_lengths__score_as_the_whole_table_does() -> None:
    module = load("smith_waterman")
    pairs = module.proteins(40, shortest=5, longest=60)
    with module.alignment(pairs) as engine:
        engine.run()
        assert engine["best"].tolist() == [module.reference(*pair) for pair in pairs]


def test_smith_waterman__longest_first__takes_fewer_cycles_than_as_the_pairs_come() -> None:
    module = load("smith_waterman")
    pairs = module.proteins(1472 * 12, shortest=5, longest=60)
    cycles = {}
    for first in (False, True):
        with module.alignment(pairs, longest_first=first) as engine:
            engine.run()
            cycles[first] = engine.report.total_cycles
    assert cycles[True] < 0.85 * cycles[False]


def test_shared_out__pairs_of_different_length__no_tile_has_much_more_than_another() -> None:
    module = load("smith_waterman")
    sizes = np.random.default_rng(0).integers(10, 100, 600)
    tile = module.shared_out(sizes, 20)
    load_of = np.bincount(tile, weights=sizes, minlength=20)
    assert load_of.max() - load_of.min() <= sizes.max()


def test_low_rank_mvm__small_telescope__commands_are_numpys_and_bytes_fall() -> None:
    module = load("low_rank_mvm")
    telescope = module.Telescope(120, 400, 4)
    reconstructor = telescope.reconstructor()
    kernel = module.kernels(300, 600)["Cauchy"]
    for dense in (telescope.covariance(), reconstructor, kernel):
        assert np.isfinite(dense).all()
        matrix = module.lowrank.compress(dense, 50, tolerance=1e-3)
        assert matrix.relative_error <= 1e-3
        assert module.error_of_product(matrix, dense, "float") < 2e-3
    assert matrix.compression < 0.5
    one, other = module.cycles_of_two_vectors(matrix)
    assert one == other


def test_low_rank_mvm__von_karman_covariance__falls_from_one() -> None:
    module = load("low_rank_mvm")
    covariance = module.von_karman(np.array([0.0, 1e-3, 1.0, 10.0, 40.0]))
    assert covariance[0] == 1
    assert (np.diff(covariance) < 0).all()
    special = pytest.importorskip("scipy.special")
    x = 2 * np.pi * np.array([1.0, 10.0, 40.0]) / module.OUTER_SCALE
    wanted = 2 ** (1 / 6) / special.gamma(5 / 6) * x ** (5 / 6) * special.kv(5 / 6, x)
    np.testing.assert_allclose(covariance[2:], wanted, rtol=1e-5)


def test_variables__copies_between_views__are_numpys(capsys: pytest.CaptureFixture[str]) -> None:
    with load("tutorial/variables").build() as engine:
        engine["v2"] = v2 = np.array([[9, 8, 7, 6], [0, 0, 0, 0]], np.float32)
        engine.run()
        v2[1] = [1.0, 1.5, 2.0, 2.5]
        np.testing.assert_array_equal(engine["v2"], v2)
        np.testing.assert_array_equal(engine["v3"], np.concatenate([v2, v2[::-1]]).T)
    assert "v1" in capsys.readouterr().out


def test_operations__results__are_numpys() -> None:
    module = load("tutorial/operations")
    v1, v2 = np.random.default_rng(0).random((2, 2, 2), dtype=np.float32)
    with module.build() as engine:
        engine["v1"], engine["v2"] = v1, v2
        engine.run()
        for name, wanted in module.reference(v1, v2).items():
            np.testing.assert_allclose(engine[name], wanted, rtol=1e-6)


def test_vertices__sums__are_numpys() -> None:
    v = np.random.default_rng(0).random((5, 1000), dtype=np.float32)
    with load("tutorial/vertices").build() as engine:
        engine["v"] = v
        engine.run()
        np.testing.assert_allclose(engine["sums"], v.sum(axis=1, dtype=np.float64), rtol=1e-6)


def test_profiling__three_mappings__the_one_without_exchange_is_quickest() -> None:
    module = load("tutorial/profiling")
    reports = [module.build(tiles).report for tiles in module.MAPPINGS.values()]
    cycles = [report.cycles().total for report in reports]
    assert cycles == sorted(cycles, reverse=True)
    assert reports[-1].cycles().exchange == 0


def test_matvec__plain_and_split__are_numpys() -> None:
    plain, split = load("tutorial/matvec"), load("tutorial/matvec_optimised")
    rng = np.random.default_rng(0)
    matrix, vector = rng.random((300, 100), dtype=np.float32), rng.random(100, dtype=np.float32)
    for engine in (plain.build(300, 100), split.build(300, 100, 7)):
        with engine:
            np.testing.assert_allclose(plain.multiply(engine, matrix, vector), matrix @ vector, rtol=1e-5)


def test_matvec_optimised__published_size__estimate_and_model_choose_alike() -> None:
    from abele.machine import systems
    from abele.poplar import Target

    module = load("tutorial/matvec_optimised")
    assert module.best_parts(Target(systems.get("bow")), 10_000, 1_000) == 7
    modelled = {parts: module.device_cycles(module.build(10_000, 1_000, parts).report) for parts in (1, 7, 32)}
    assert min(modelled, key=lambda parts: modelled[parts]) == 7


@pytest.mark.parametrize("depth", [1, 2])
def test_prefetch__either_depth__every_batch_is_taken_once(depth: int) -> None:
    module = load("tutorial/prefetch")
    loader = module.Loader(0.0)
    with module.build(5, depth) as engine:
        engine.connect("data", loader)
        engine.run()
    assert loader.calls["complete"] == 5
    assert (loader.calls["prefetch"] > 0) == (depth == 2)


def scripts() -> list[Path]:
    return sorted(p for p in EXAMPLES.rglob("*.py"))


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda p: p.stem)
def test_page__code_blocks__stand_in_the_example(page: Path) -> None:
    source = "\n".join(_dedented(script) for script in scripts())
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
        for part in block.strip().split("\n\n\n"):
            lines = "\n".join(line.strip() for line in part.splitlines())
            assert lines in source, f"{page.name} quotes what no example says"


def _dedented(script: Path) -> str:
    return "\n".join(line.strip() for line in script.read_text(encoding="utf-8").splitlines())


def test_examples__each__has_a_page_and_a_line_in_the_index() -> None:
    index = (PAGES / "index.md").read_text(encoding="utf-8")
    for script in scripts():
        if script.parent.name in ("llm", "popart", "poptorch", "popxl"):
            page = (PAGES / f"{script.parent.name}.md").read_text(encoding="utf-8")
            assert script.name in page or script.stem == "__main__"
            continue
        name = script.stem.removesuffix("_poplar")
        if name != "saxpy":
            assert (PAGES / f"{name}.md").is_file()
            assert f"({name}.md)" in index


def test_spmm__static_and_dynamic__are_numpys() -> None:
    spmm = load("spmm")
    problem = spmm.Problem(rows=128, columns=16, density=0.25, block=8)
    for cycles, error in (spmm.static_product(problem), spmm.dynamic_product(problem)):
        assert cycles > 0
        assert error < 5e-3
