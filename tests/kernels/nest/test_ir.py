from __future__ import annotations

import doctest

import numpy as np
import pytest

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.expr import check_computes
from abele.kernels import HostKernel, evaluate
from abele.kernels.nest import ir
from abele.kernels.nest.ir import (
    Affine,
    Cast,
    Const,
    Index,
    Random,
    affine,
    apply,
    dims,
    load,
    nest,
    result_type,
    select,
    store,
)
from abele.numerics import bool_, f8_143, f16, f32, i32, quarter, u32


def kernel(*nests, shapes=((4, 5), (4,)), types=(f32, f32), inputs=1, outputs=1) -> HostKernel:
    return HostKernel(shapes, types, inputs, outputs, nests)


def rows(value, combine="add", dims=None, **options) -> HostKernel:
    return kernel(nest(dims or {"i": 4, "j": 5}, store(1, ("i",), value, combine, **options)))


def test_module__doctest__holds():
    assert doctest.testmod(ir).failed == 0


def test_affine__sums_and_products__merge_terms():
    i, j = dims("i j")
    assert 2 * i - j + i + 3 == Affine((("j", -1), ("i", 3)), 3)
    assert i - i == affine()
    assert str(1 - 2 * i + j) == "-2*i + j + 1"
    assert str(affine()) == "0"
    assert affine("i", ("k", 2), const=-1).bounds({"i": 4, "k": 3}) == (-1, 6)
    assert affine("i", ("k", -1)).bounds({"i": 4, "k": 3}) == (-2, 3)
    assert affine(("i", 3)).substitute({"i": affine(("a", 2), const=1)}) == affine(("a", 6), const=3)


def test_kernel__text__reads_like_the_loops():
    value = select(load(0, "i", affine("j", const=-1), fill=0.0) > 0.5, 1.0, apply("exp", load(0, "i", "j")))
    assert str(rows(value)) == (
        "%0 in f32[4, 5]\n%1 out f32[4]\nfor i<4, j<5\n"
        "  %1[i] add= select(%0[i, j - 1 else 0] > 0.5, 1.0, exp(%0[i, j]))"
    )


def test_result_type__of_each_expression__is_a_compute_type():
    types = (f16, i32, u32)
    assert result_type(load(0, "i"), types) == f32
    assert result_type(load(1, "i") + 1, types) == i32
    assert result_type(load(0, "i") < 1.0, types) == bool_
    assert result_type(Cast(f16, load(1, "i")), types) == f32
    assert result_type(Index(affine("i")), types) == i32
    assert result_type(Random(2, 0, affine("i")), types) == u32
    assert result_type(2.0 * load(0, "i"), types) == f32


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: rows(load(0, "i", "k")), r"no dim 'k' in the nest over i, j"),
        (lambda: rows(load(7, "i", "j")), r"no operand %7: the kernel has 2"),
        (lambda: rows(load(0, "i")), r"%0 has rank 2, indexed with 1"),
        (lambda: rows(load(0, "i", affine("j", const=1))), r"index j \+ 1 of %0 runs from 1 to 5, extent is 5"),
        (lambda: rows(load(0, "i", "j"), "set"), r"set store sets each element j times"),
        (lambda: rows(load(0, "i", "j"), dims={"i": 0, "j": 5}), r"dim i of a nest has extent 0"),
        (lambda: kernel(nest({"i": 4, "j": 5}, store(0, ("i", "j"), 1.0))), r"store to %0, which is an input"),
        (lambda: kernel(shapes=((4,),)), r"kernel has 1 operand shapes but 2 types"),
        (lambda: kernel(inputs=2), r"kernel has 2 inputs and 1 outputs but only 2 shapes"),
        (lambda: ir.Apply("exp", (Const(1.0), Const(2.0))), r"operation 'exp' takes 1 argument, got 2"),
        (
            lambda: rows(Cast(f32, Random(0, 1, affine("i")))),
            r"the seed of a random expression is a u32\[2\], got f32\[4, 5\]",
        ),
    ],
)
def test_kernel__malformed__says_what_is_wrong(make, text):
    with pytest.raises(TensorError, match=text):
        make()


def test_operations_and_combines__unknown_name__suggest_the_nearest():
    with pytest.raises(InvalidOptionError, match=r"operation 'sigmod'\n  try      did you mean 'sigmoid'\?"):
        apply("sigmod", load(0, "i"))
    with pytest.raises(InvalidOptionError, match="no store combine 'addd'\n  try      'add'"):
        store(0, ("i",), 1.0, "addd")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (load(0, "i", "j") + Index(affine("i")), "f32 and i32 meet in one operation"),
        (apply("not", load(0, "i", "j")), "not does not take f32"),
        (select(load(0, "i", "j"), 1.0, 2.0), "select needs a bool condition, got f32"),
        (Index(affine("i")) + 0.5, "constant 0.5 cannot be i32"),
        (load(0, "i", "j") > 1.0, "%1 holds f32, the stored value is bool"),
    ],
)
def test_kernel__types_that_do_not_fit__are_named(value, text):
    with pytest.raises(TypeMismatchError, match=text):
        rows(value)


def test_evaluate__matrix_product__matches_numpy():
    a, b = np.random.default_rng(0).normal(size=(2, 6, 6)).astype(np.float32)
    body = store(2, ("i", "j"), load(0, "i", "k") * load(1, "k", "j"), "add")
    product = HostKernel(((6, 6),) * 3, (f32,) * 3, 2, 1, (nest({"i": 6, "j": 6, "k": 6}, body),))
    np.testing.assert_allclose(evaluate(product, [a, b])[0], a @ b, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(evaluate(product, [a, b], precise=True)[0], a.astype(np.float64) @ b)


def test_evaluate__store_outside_the_operand__is_dropped():
    body = store(1, (affine("i", const=-1),), load(0, "i"), "add")
    shifted = HostKernel(((4,), (4,)), (f32, f32), 1, 1, (nest({"i": 4}, body),))
    np.testing.assert_array_equal(evaluate(shifted, [np.arange(4.0)])[0], [1, 2, 3, 0])


def test_evaluate__accumulate__starts_from_what_is_there():
    body = rows(load(0, "i", "j"), accumulate=True)
    assert (evaluate(body, [np.ones((4, 5)), np.full(4, 10.0)])[0] == 15).all()


def test_evaluate__wrong_arrays__says_which():
    with pytest.raises(TensorError, match="kernel takes 1 input, got 0 arrays"):
        evaluate(rows(load(0, "i", "j")), [])
    with pytest.raises(TensorError, match=r"operand %0 has shape \[5, 4\], the kernel wants \[4, 5\]"):
        evaluate(rows(load(0, "i", "j")), [np.zeros((5, 4))])


def test_check_computes__of_an_8_bit_float__refuses_what_kernels_load_as_f32() -> None:
    assert ir.compute_type(f8_143) == ir.compute_type(quarter("F152", 3)) == f32
    check_computes(f32, f16)
    with pytest.raises(TypeMismatchError, match="sum: libraries do not compute with f8_143") as raised:
        check_computes(f32, f8_143, name="sum")
    assert "popops.cast it to f16 or f32 first" in str(raised.value)
