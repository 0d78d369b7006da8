"""Bounds of values hold whatever the values are, and masks are found in them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.expr.operation import TABLE
from abele.kernels.nest.ir import Apply, Const, Expr, Index, affine
from abele.kernels.nest.loop_nest import Acc, NestLocal
from abele.kernels.tasks.known_values import ANY, CellTable, DimCells, Evaluation, Known, adds_nothing, cells_of
from abele.kernels.tasks.program import Put, Ref, Task, TaskReduction
from abele.numerics import f32
from support.examples import examples

ROWS, KEYS, INNER = 6, 9, 4
TABLE_OF = CellTable(DimCells(ROWS, 2), DimCells(KEYS, 4))
ROW, KEY = affine("i"), affine("j")
UNARY, BINARY = ["neg", "exp", "square"], ["add", "sub", "mul", "max", "min", "div"]
ORDERS = ["lt", "le", "gt", "ge", "eq", "ne"]


def evaluation(constants: dict[int, np.ndarray], *, values: tuple[Expr, ...] = (Const(0.0),), **task) -> Evaluation:
    puts = tuple(Put(9, (ROW, KEY), value) for value in values)
    made = Task("t", (("i", ROWS), ("j", KEYS)), (("k", INNER),), puts=puts, **{"reductions": (), **task})
    return Evaluation(made, ("i", "j"), TABLE_OF, lambda ref: ANY, constants, ())


def expressions() -> st.SearchStrategy[Expr]:
    leaves = st.one_of(
        st.sampled_from(
            [Ref(0, (ROW, KEY)), Ref(1, (KEY, ROW)), Ref(2, (KEY,)), Ref(3, (affine(2), ROW)), Ref(9, (ROW, KEY))]
        ),
        st.floats(-3, 3, width=32).map(Const),
    )

    def larger(parts: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        truth = st.builds(lambda op, a, b: Apply(op, (a, b)), st.sampled_from(ORDERS), parts, parts)
        truths = st.one_of(truth, truth.map(lambda t: Apply("not", (t,))), st.builds(_both, truth, truth))
        return st.one_of(
            st.builds(lambda op, a: Apply(op, (a,)), st.sampled_from(UNARY), parts),
            st.builds(lambda op, a, b: Apply(op, (a, b)), st.sampled_from(BINARY), parts, parts),
            st.builds(lambda t, a, b: Apply("select", (t, a, b)), truths, parts, parts),
        )

    return st.recursive(leaves, larger, max_leaves=6)


def _both(a: Expr, b: Expr) -> Expr:
    return Apply("and", (a, b))


def in_numpy(part: Expr, held: dict[int, np.ndarray]) -> np.ndarray:
    grid = dict(zip("ij", np.ogrid[:ROWS, :KEYS], strict=True))
    match part:
        case Const():
            return np.float64(part.value)
        case Ref():
            at = tuple(sum((grid[d] * c for d, c in a.terms), np.int64(a.const)) for a in part.index)
            return held[part.space][at].astype(np.float64)
    assert isinstance(part, Apply)
    args = [in_numpy(a, held) for a in part.args]
    with np.errstate(all="ignore"):
        return TABLE[part.op].meaning(*args)


@examples(30)
@given(expression=expressions(), seed=st.integers(0, 10**6))
def test_stores__any_expression_of_masks_and_finite_values__lie_between_their_bounds(expression, seed):
    rng = np.random.default_rng(seed)
    shapes = {0: (ROWS, KEYS), 1: (KEYS, ROWS), 2: (KEYS,), 3: (3, ROWS)}
    masks = {n: rng.choice([0.0, 1.0, -np.inf], shape) for n, shape in shapes.items()}
    masks[0][:, 4:8] = -np.inf
    held = {**masks, 9: rng.normal(size=(ROWS, KEYS))}
    value = np.broadcast_to(in_numpy(expression, held), (ROWS, KEYS))
    known = evaluation(masks, values=(expression,)).stores()[0]
    low, high = (
        np.broadcast_to(b, TABLE_OF.shape).repeat([2, 2, 2], 0).repeat([4, 4, 1], 1) for b in (known.low, known.high)
    )
    # Infinity less infinity, and what comes of it, is no number: nothing is said about it.
    if _leaves_numbers(expression, held):
        slack = 1e-6 * np.where(np.isfinite(value), abs(value), 0.0)
        assert ((low - slack <= value) & (value <= high + slack)).all()


def _leaves_numbers(part: Expr, held: dict[int, np.ndarray]) -> bool:
    """True if no part of an expression divides by zero, or is no number."""
    fine = not np.isnan(in_numpy(part, held)).any()
    if isinstance(part, Apply) and part.op == "div":
        fine = (
            fine
            and bool(np.all(in_numpy(part.args[1], held)))
            and bool(np.isfinite(in_numpy(part.args[1], held)).all())
        )
    return fine and all(_leaves_numbers(a, held) for a in part.args)


def test_stores__softmax_of_masked_scores__are_zero_where_all_of_a_cell_is_masked():
    mask = np.where(np.arange(KEYS) <= np.arange(ROWS)[:, None], 0.0, -np.inf)
    power = Apply("exp", (Apply("sub", (NestLocal(0), Ref(8, (ROW,)))),))
    share = Apply("mul", (NestLocal(1), Apply("inv", (Ref(7, (ROW,)),))))
    scores = Apply("add", (Acc(0), Ref(0, (ROW, KEY))))
    sums = (TaskReduction("add", Ref(6, (ROW, affine("k"))), f32),)
    task = {"locals": (scores, power), "reductions": sums}
    known = evaluation({0: mask}, values=(share,), **task).stores()[0]
    hidden = [[False, True, True], [False, True, True], [False, False, True]]
    assert (np.broadcast_to(known.is_always(0.0), (3, 3)) == hidden).all()


@pytest.mark.parametrize(("combine", "neutral"), [("add", 0.0), ("max", -np.inf), ("min", np.inf), ("mul", 1.0)])
def test_adds_nothing__terms_from_which_a_reduction_starts__in_these_cells_alone(combine, neutral):
    values = np.full((ROWS, KEYS), 3.0)
    values[2:4, 4:8] = neutral
    reduction = TaskReduction(combine, Ref(0, (ROW, KEY)), f32)
    terms = evaluation({0: values}, reductions=(reduction,)).terms()[0]
    assert np.argwhere(adds_nothing(reduction, terms, TABLE_OF)).tolist() == [[1, 1]]


def test_stores__comparison_of_indices__is_known_off_the_diagonal():
    causal = Apply("le", (Index(affine("j", ("i", -1))), Const(0)))
    known = evaluation({}, values=(causal,)).stores()[0]
    assert known.low.tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0]]
    assert known.high.tolist() == [[1, 0, 0], [1, 0, 0], [1, 1, 0]]


def test_cells__of_a_long_dim__are_few_and_cover_it():
    cells = cells_of(1000)
    assert (cells.count, cells.size) == (125, 8)
    assert (cells.starts[0], cells.ends[-1]) == (0, 1000)
    assert cells.within((16, 1000)) == slice(2, 125)
    assert isinstance(ANY, Known)
