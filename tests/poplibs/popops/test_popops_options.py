"""Options of element-wise functions, types that operations refuse, PopLibs' names in expressions."""

from __future__ import annotations

import numpy as np
import pytest
from poplibs_kit import Bench, assert_close

from abele import expr as language
from abele.errors import InvalidOptionError, TypeMismatchError
from abele.expr import POPOPS as OPS
from abele.graph import Execute, walk
from abele.numerics import f16, f32, i32
from abele.poplibs import popops
from abele.poplibs.popops import Cast, _1, _2
from abele.poplibs.popops.expr import Const, Op, exp
from abele.poplibs.popops.expressions import names as expr_names

RNG = np.random.default_rng(3)
UNFUSED = {"enableGenerateCodelet": False}


def _groups(bench: Bench) -> list[object]:
    return [g for step in walk(bench.prog) if isinstance(step, Execute) for g in step.compute_set.groups]


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_generate_codelet__off__has_one_vertex_an_operation(dtype: str) -> None:
    results = []
    for options in (None, UNFUSED, {**UNFUSED, "forceGenerateCodelet": "true"}):
        bench = Bench(4)
        x, y = bench.tensor(RNG.standard_normal((6, 20)), dtype), bench.tensor(np.linspace(-1, 1, 20), dtype)
        bench.data[x] = np.linspace(-2, 2, 120).reshape(6, 20).astype(bench.data[x].dtype)
        shared = _1 * 0.5
        out = popops.map(bench.graph, shared + exp(_2) * shared, [x, y], bench.prog, options=options)
        results.append((len(_groups(bench)), bench.run_both(out)[0], out.dtype))
    assert [count for count, _, _ in results] == [1, 4, 1]
    assert_close(results[1][1], results[0][1], results[0][2])


def test_generate_codelet__off_and_in_place__reads_before_it_writes() -> None:
    bench = Bench(4)
    x, y = bench.tensor(RNG.standard_normal(40), "f32"), bench.tensor(RNG.standard_normal(40), "f32")
    popops.map_with_outputs(
        bench.graph, [_1 + _2 * 2, Cast(_1 * 3, "f32")], [x, y], [x, y], bench.prog, options=UNFUSED
    )
    a, b = bench.values(x), bench.values(y)
    got, other = bench.run_both(x, y)
    assert_close(got, a + 2 * b, f32)
    assert_close(other, a * 3, f32)


def test_vector_broadcast__off__reads_repeated_elements() -> None:
    costs = []
    for flag in (True, False):
        bench = Bench(4)
        x, b = bench.tensor(RNG.standard_normal((8, 20)), "f32"), bench.tensor(RNG.standard_normal(20), "f32")
        out = popops.add(bench.graph, x, b, bench.prog, options={"enableVectorBroadcastOptimisations": flag})
        (group,) = _groups(bench)
        costs.append(int(group.edges["a1"].row_sizes.sum()))  # type: ignore[attr-defined]
        assert_close(bench.run_both(out)[0], bench.values(x) + bench.values(b), f32)
    assert costs == [80, 160]


@pytest.mark.parametrize(("exponent", "op"), [(2.0, "square"), (0.5, "sqrt"), (-0.5, "rsqrt"), (-1, "inv"), (3, "mul")])
def test_expression_optimisation__constant_power__is_a_cheaper_operation(exponent: float, op: str) -> None:
    from abele.poplibs.popops.expressions.simplify import simplified

    made = simplified(Cast(Op("pow", _1, Const(exponent)), f16)).node
    assert isinstance(made, language.Cast)
    assert made.arg.op == op  # type: ignore[attr-defined]
    bench = Bench(4)
    x = bench.tensor(np.linspace(0.1, 3, 50), "f32")
    fast = popops.pow(bench.graph, x, exponent, bench.prog)
    slow = popops.pow(bench.graph, x, exponent, bench.prog, options={"enableExpressionOptimizations": False})
    one, other = bench.run_both(fast, slow)
    np.testing.assert_allclose(one, other, rtol=1e-5)


def test_options__misspelt__names_the_nearest() -> None:
    bench = Bench(4)
    x = bench.tensor(np.zeros(4), "f32")
    with pytest.raises(InvalidOptionError, match="exp has no option 'enableGenerateCodlet'; did you mean"):
        popops.exp(bench.graph, x, bench.prog, options={"enableGenerateCodlet": True})


FLOAT_ONLY = "exp exp2 expm1 log log1p tanh sigmoid erf gelu_erf sin cos tan asin cbrt sqrt rsqrt inv ceil floor trunc"
FLOAT_ONLY += " round nearbyint is_finite is_inf is_nan"


@pytest.mark.parametrize("name", FLOAT_ONLY.split())
def test_float_operation__integers__are_refused(name: str) -> None:
    bench = Bench(4)
    with pytest.raises(TypeMismatchError, match=r"does not take i32|cannot be i32"):
        getattr(popops, name)(bench.graph, bench.tensor(np.zeros(4), "i32"), bench.prog)


@pytest.mark.parametrize("name", ["popcount", "count_leading_zeros", "hash", "bitwise_not"])
def test_bit_operation__floats__are_refused(name: str) -> None:
    bench = Bench(4)
    with pytest.raises(TypeMismatchError, match="does not take f32"):
        getattr(popops, name)(bench.graph, bench.tensor(np.zeros(4), "f16"), bench.prog)


@pytest.mark.parametrize(
    "name", ["shift_left", "shift_right", "shift_right_sign_extend", "bitwise_and", "bitwise_xnor"]
)
def test_binary_bit_operation__floats__are_refused(name: str) -> None:
    bench = Bench(4)
    x = bench.tensor(np.zeros(4), "f32")
    with pytest.raises(TypeMismatchError, match="does not take f32"):
        getattr(popops, name)(bench.graph, x, x, bench.prog)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32"])
def test_arithmetic__every_element_type__is_numpy(dtype: str) -> None:
    bench = Bench(4)
    a, b = bench.tensor([9, 7, 100, 4], dtype), bench.tensor([2, 3, 7, 1], dtype)
    outs = [getattr(popops, n)(bench.graph, a, b, bench.prog) for n in ("add", "sub", "mul", "max", "lt")]
    add, sub, mul, most, less = bench.run_both(*outs)
    assert add.tolist() == [11, 10, 107, 5]
    assert sub.tolist() == [7, 4, 93, 3]
    assert mul.astype(np.float64).tolist() in ([18, 21, 700, 4], [18, 21, 700 - 256 * 3, 4], [18, 21, 700 - 512, 4])
    assert most.tolist() == [9, 7, 100, 4]
    assert not less.any()
    assert [o.dtype.name for o in outs[:4]] == [dtype] * 4


def test_names__every_operation__has_poplibs_name_in_expressions() -> None:
    # Other libraries register operations of their own beside these.
    assert set(expr_names.NAMES.values()) <= set(OPS)
    assert {"add", "select", "hash", "shift_right_sign_extend"} <= set(expr_names.NAMES.values())
    bench = Bench(4)
    a, b = bench.tensor([1.0, -2.0], "f32"), bench.tensor([3.0, 4.0], "f32")
    e = expr_names
    chosen = popops.map(bench.graph, e.Select(_1, e.Add(_2, 1.0), e.Gt(_1, 0.0)), [a, b], bench.prog)  # type: ignore[attr-defined]
    hashed = popops.map(bench.graph, e.Hash(_1), [bench.tensor([1, 2], "i32")], bench.prog)  # type: ignore[attr-defined]
    got, mixed = bench.run_both(chosen, hashed)
    assert got.tolist() == [1.0, 5.0]
    assert hashed.dtype == i32
    assert mixed[0] != mixed[1]


@pytest.mark.parametrize("name", ["0", "layer-3", "größe", "a b/c.d", ""])
def test_map__any_name__makes_a_codelet(name: str) -> None:
    bench = Bench(4)
    out = popops.map(bench.graph, _1 + 1.0, [bench.tensor([1.0], "f32")], bench.prog, name)
    assert bench.run(out)[0].tolist() == [2.0]
