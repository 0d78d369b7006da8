"""Surprises in PopLibs, each in numbers that can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from poplibs_kit import Bench

from abele.poplibs import poplin, popnn, popops, poprand
from abele.poplibs.popnn import gru, lstm

ALL_ONES = 0xFFFFFFFF


def pooled(
    kind: str, values: np.ndarray, kernel: int, stride: int, pad: tuple[int, int]
) -> tuple[Bench, object, object]:
    bench = Bench(4)
    x = bench.tensor(np.asarray(values, np.float32).reshape(1, 1, -1))
    params = popnn.PoolParams(kind, (x.shape[2],), (kernel,), (stride,), pad[:1], pad[1:], 1, 1)
    return bench, x, params


def test_average_pooling__padding__does_not_count() -> None:
    bench, x, params = pooled("avg", [2.0, 4.0, 6.0], 2, 2, (1, 2))
    (got,) = bench.run_both(popnn.pool(bench.graph, x, params, bench.prog))
    assert got.flatten().tolist() == [2.0, 5.0, 0.0]  # One element inside, two, none.


def test_sum_pooling__padding__adds_nothing() -> None:
    bench, x, params = pooled("sum", [2.0, 4.0, 6.0], 2, 2, (1, 2))
    (got,) = bench.run_both(popnn.pool(bench.graph, x, params, bench.prog))
    assert got.flatten().tolist() == [2.0, 10.0, 0.0]


@pytest.mark.parametrize(("scaled", "wanted"), [(False, [3.0, 3.0, 0.0]), (True, [1.5, 1.5, 0.0])])
def test_max_pooling_gradient__ties__get_all_of_it_each(scaled: bool, wanted: list[float]) -> None:
    bench, x, params = pooled("max", [7.0, 7.0, 1.0], 3, 1, (0, 0))
    out = popnn.pool(bench.graph, x, params, bench.prog)
    gradient = bench.tensor(np.full((1, 1, 1), 3.0, np.float32))
    of_x = popnn.pool_input_gradient(bench.graph, params, gradient, x, out, prog=bench.prog, use_scaled_gradient=scaled)
    (got,) = bench.run_both(of_x)
    assert got.flatten().tolist() == wanted


@pytest.mark.parametrize(("strided", "wanted"), [(None, [1.0, 11.0]), (True, [1.0, 11.0]), (False, [5.0, 7.0])])
def test_group_norm__channels__are_dealt_in_turn_by_default(strided: bool | None, wanted: list[float]) -> None:
    bench = Bench(4)
    acts = bench.tensor(np.array([0.0, 10.0, 2.0, 12.0], np.float32).reshape(1, 4, 1))
    options = {} if strided is None else {"groupNormStridedChannelGrouping": strided}
    mean, _ = popnn.group_norm_statistics(bench.graph, acts, 1e-5, bench.prog, 2, options=options)
    (got,) = bench.run_both(mean)
    assert got.flatten().tolist() == wanted


def test_select__the_predicate__comes_last() -> None:
    bench = Bench(4)
    then, otherwise = bench.tensor(np.float32([1, 2])), bench.tensor(np.float32([10, 20]))
    predicate = bench.tensor(np.array([True, False]))
    (got,) = bench.run_both(popops.select(bench.graph, then, otherwise, predicate, bench.prog))
    assert got.tolist() == [1.0, 20.0]


@pytest.mark.parametrize("kind", ["gelu", "gelu_erf", "swish"])
def test_gradient__of_gelu_and_swish__takes_the_input(kind: str) -> None:
    bench, step = Bench(4), 1e-3
    points = np.array([-1.0, 0.5, 2.0])
    x, ones = bench.tensor(points.astype(np.float32)), bench.tensor(np.ones(3, np.float32))
    sides = [bench.tensor((points + d).astype(np.float32)) for d in (step, -step)]
    slope = popnn.non_linearity_input_gradient(bench.graph, kind, x, ones, bench.prog)
    high, low = (popnn.non_linearity(bench.graph, kind, s, bench.prog) for s in sides)
    got, above, below = bench.run_both(slope, high, low)
    np.testing.assert_allclose(got, (above - below) / (2 * step), atol=2e-3)


@pytest.mark.parametrize(("kind", "slope"), [("sigmoid", lambda y: y * (1 - y)), ("tanh", lambda y: 1 - y * y)])
def test_gradient__of_sigmoid_and_tanh__takes_the_output(kind: str, slope: object) -> None:
    bench, output = Bench(4), np.float32([0.25, 0.5, 0.75])
    made = popnn.non_linearity_input_gradient(
        bench.graph, kind, bench.tensor(output), bench.tensor(np.ones(3, np.float32)), bench.prog
    )
    (got,) = bench.run_both(made)
    np.testing.assert_allclose(got, slope(output), rtol=1e-6)


def test_hard_sigmoid__is_a_fifth_of_the_input_and_a_half() -> None:
    bench = Bench(4)
    made = popnn.hard_sigmoid(bench.graph, bench.tensor(np.float32([-3, -1, 0, 1, 3])), bench.prog)
    np.testing.assert_allclose(bench.run_both(made)[0], [0, 0.3, 0.5, 0.7, 1], rtol=1e-6)


def test_cross_entropy__scales__loss_and_deltas_as_poplibs_does() -> None:
    bench, scaling, out_scaling = Bench(4), 8.0, 4.0
    p = np.float32([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])
    outputs = bench.tensor(p * out_scaling)
    labels = bench.tensor(np.array([1, ALL_ONES], np.uint32))
    loss, deltas = bench.tensor(np.zeros(2, np.float32)), bench.tensor(np.zeros((2, 3), np.float32))
    scales = [bench.tensor(np.float32(n), layout=0) for n in (scaling, out_scaling)]
    bench.prog.add(
        popnn.calc_loss(
            bench.graph,
            outputs,
            labels,
            loss,
            deltas,
            popnn.LossType.CROSS_ENTROPY_LOSS,
            deltas_scale=scales[0],
            model_output_scaling=scales[1],
        )
    )
    got_loss, got_deltas = bench.run_both(loss, deltas)
    np.testing.assert_allclose(got_loss, [np.log(4.0), 0.0], rtol=1e-5, atol=1e-6)
    hot = np.float32([0, 1, 0])
    np.testing.assert_allclose(got_deltas, [scaling / out_scaling * (p[0] - hot) * out_scaling, np.zeros(3)], rtol=1e-5)


def gates(graph: object, layer: object, module: object, values: list[float]) -> tuple[object, object]:
    """Weights of zeros, and biases that make each gate what its non-linearity gives for ``values``."""
    weights = module.create_weights(graph, layer)
    return weights, np.float32(values)[:, None]


def test_lstm__gates__are_forget_input_candidate_output() -> None:
    bench, layer = Bench(4), lstm.LstmParams("f32", 1, 1, (1, 1))
    state, x = lstm.create_initial_state(bench.graph, layer), lstm.create_input(bench.graph, layer)
    weights, biases = gates(bench.graph, layer, lstm, [1.0, 2.0, 0.5, -1.0])
    for tensor in (x, state.output, weights.input, weights.output):
        bench.data[tensor] = np.zeros(tensor.shape, np.float32)
    bench.data[state.cell_state] = np.full((1, 1), 3.0, np.float32)
    bench.data[weights.biases] = biases
    made = lstm.lstm_fwd(bench.graph, layer, state, x, weights, bench.prog)
    cell, output = bench.run_both(made.cell_state, made.output)
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    wanted = sigmoid(1.0) * 3.0 + sigmoid(2.0) * np.tanh(0.5)
    np.testing.assert_allclose(cell.flatten(), wanted, rtol=1e-5)
    np.testing.assert_allclose(output.flatten(), sigmoid(-1.0) * np.tanh(wanted), rtol=1e-5)


def test_gru__gates__are_reset_update_candidate_and_update_keeps_the_state() -> None:
    bench, layer = Bench(4), gru.GruParams("f32", 1, 1, (1, 1))
    state, x = gru.create_initial_state(bench.graph, layer), gru.create_input(bench.graph, layer)
    weights, biases = gates(bench.graph, layer, gru, [1.0, 2.0, 0.5])
    for tensor in (x, weights.input, weights.output):
        bench.data[tensor] = np.zeros(tensor.shape, np.float32)
    bench.data[state], bench.data[weights.biases] = np.full((1, 1), 3.0, np.float32), biases
    made = gru.gru_fwd(bench.graph, layer, state, x, weights, bench.prog)
    (output,) = bench.run_both(made.state)
    update = 1 / (1 + np.exp(-2.0))
    np.testing.assert_allclose(output.flatten(), update * 3.0 + (1 - update) * np.tanh(0.5), rtol=1e-5)


def test_one_hot__masked_label__is_off_everywhere() -> None:
    bench = Bench(4)
    labels = bench.tensor(np.array([2, ALL_ONES], np.uint32))
    encoded = bench.tensor(np.full((2, 3), 7.0, np.float32))
    popops.encode_one_hot(bench.graph, labels, encoded, bench.prog, on=2.0, off=-1.0)
    assert bench.run_both(encoded)[0].tolist() == [[-1, -1, 2], [-1, -1, -1]]


def test_reduce__scale_and_update__square_then_scale_then_add() -> None:
    bench = Bench(4)
    x, out = bench.tensor(np.float32([[1, 2], [3, 4]])), bench.tensor(np.float32([100, 200]))
    half = bench.tensor(np.float32(0.5), layout=0)
    popops.reduce_with_output(bench.graph, x, out, (0,), "SQUARE_ADD", bench.prog, scale=half, update=True)
    assert bench.run_both(out)[0].tolist() == [105.0, 210.0]


def test_reduce__half_sums__are_kept_in_single_precision() -> None:
    bench = Bench(4)
    x = bench.tensor(np.ones(4096, np.float16), layout=0)
    (got,) = bench.run_both(popops.reduce(bench.graph, x, (0,), "ADD", bench.prog))
    assert float(got) == 4096.0  # Sums in half precision stop growing at 2048.


def test_reduce__over_no_dimension__is_the_operand_or_its_square() -> None:
    bench = Bench(4)
    x = bench.tensor(np.float32([2, -3]))
    same = popops.reduce(bench.graph, x, (), "ADD", bench.prog)
    square = popops.reduce(bench.graph, x, (), "SQUARE_ADD", bench.prog)
    got = bench.run_both(same, square)
    assert [g.tolist() for g in got] == [[2, -3], [4, 9]]


def test_rounding__of_halves__away_from_zero_or_to_even() -> None:
    bench = Bench(4)
    x = bench.tensor(np.float32([-2.5, -1.5, 0.5, 1.5, 2.5]))
    got = bench.run_both(
        *(f(bench.graph, x, bench.prog) for f in (popops.round, popops.nearbyint, popops.trunc, popops.floor))
    )
    assert [g.tolist() for g in got] == [
        [-3, -2, 1, 2, 3],
        [-2, -2, 0, 2, 2],
        [-2, -1, 0, 1, 2],
        [-3, -2, 0, 1, 2],
    ]


def test_cast__float_to_integer__truncates() -> None:
    bench = Bench(4)
    made = popops.cast(bench.graph, bench.tensor(np.float32([-1.9, -0.5, 0.5, 1.9])), "i32", bench.prog)
    assert bench.run_both(made)[0].tolist() == [-1, 0, 0, 1]


def test_uniform_integers__both_ends__are_drawn() -> None:
    bench = Bench(4)
    seed = bench.tensor(np.array([1, 2], np.uint32))
    reference = bench.tensor(np.zeros(400, np.int32))
    made = poprand.uniform(bench.graph, seed, 0, reference, bench.prog, low=-1, high=1)
    assert set(bench.run_both(made)[0].tolist()) == {-1, 0, 1}


def test_dropout__same_seed_and_modifier__is_its_own_gradient() -> None:
    bench = Bench(4)
    seed, x = bench.tensor(np.array([1, 2], np.uint32)), bench.tensor(np.full(200, 3.0, np.float32))
    forward = poprand.dropout(bench.graph, seed, 5, x, 0.5, bench.prog)
    backward = poprand.dropout(bench.graph, seed, 5, bench.tensor(np.ones(200, np.float32)), 0.5, bench.prog)
    other = poprand.dropout(bench.graph, seed, 6, x, 0.5, bench.prog)
    out, gradient, another = bench.run_both(forward, backward, other)
    np.testing.assert_array_equal(out, 3.0 * gradient)
    assert set(gradient.tolist()) == {0.0, 2.0}
    assert (out != another).any()


def test_variance_and_deviation__epsilon__is_inside_the_root() -> None:
    bench = Bench(4)
    deviation = popops.variance_to_inv_std_dev(bench.graph, bench.tensor(np.float32([3.0])), 1.0, bench.prog)
    variance = popops.inv_std_dev_to_variance(bench.graph, bench.tensor(np.float32([0.5])), 1.0, bench.prog)
    got = bench.run_both(deviation, variance)
    np.testing.assert_allclose([g[0] for g in got], [0.5, 3.0], rtol=1e-6)


def test_map_in_place__first_operand__is_written() -> None:
    bench = Bench(4)
    a, b = bench.tensor(np.float32([1, 2])), bench.tensor(np.float32([10, 20]))
    popops.map_in_place(bench.graph, popops._2 - popops._1, [a, b], bench.prog)
    got = bench.run_both(a, b)
    assert [g.tolist() for g in got] == [[9, 18], [10, 20]]


def test_multi_update_add__equal_offsets__add_up_after_the_scale() -> None:
    bench = Bench(4)
    table = bench.tensor(np.zeros((3, 1), np.float32))
    slices = bench.tensor(np.float32([1, 2, 4]).reshape(3, 1, 1))
    offsets = bench.tensor(np.array([[2], [0], [2]], np.uint32))
    popops.multi_update_add(bench.graph, table, slices, offsets, 0.5, (0,), (1,), bench.prog)
    assert bench.run_both(table)[0].flatten().tolist() == [1.0, 0.0, 2.5]


def test_convolution__kernel__is_not_turned_around() -> None:
    bench = Bench(4)
    params = poplin.ConvParams(1, 1, 1, (3,), (2,))
    x, w = bench.tensor(np.float32([[[1, 2, 4]]])), bench.tensor(np.float32([[[10, 1]]]))
    (got,) = bench.run_both(poplin.convolution(bench.graph, x, w, params, bench.prog))
    assert got.flatten().tolist() == [12.0, 24.0]


def test_extremes__ties__the_lowest_index_wins() -> None:
    bench = Bench(4)
    x = bench.tensor(np.float32([[1, 5, 5, 0], [2, 2, 2, 2]]))
    most, at = popnn.max_and_arg_max(bench.graph, x, bench.prog)
    least_at = popnn.arg_min(bench.graph, x, bench.prog)
    got = bench.run_both(most, at, least_at)
    assert [g.tolist() for g in got] == [[5, 2], [1, 0], [3, 0]]
