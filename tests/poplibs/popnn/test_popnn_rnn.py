"""Plain recurrent networks against PyTorch in float64, and steps of sequences."""

import numpy as np
import pytest
import torch
from poplibs_kit import Bench, assert_close
from recurrent_kit import leaf

from abele.errors import InvalidOptionError, TensorError
from abele.numerics import f32
from abele.poplibs.popnn import rnn


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_rnn__against_torch_in_float64__values_and_all_gradients_agree(activation):
    bench, params = Bench(64), rnn.RnnParams(f32, 3, 4, (8, 16), activation=activation)
    graph, random = bench.graph, np.random.default_rng(0)
    x, state = rnn.create_input(graph, params), rnn.create_initial_state(graph, params)
    weights = rnn.create_weights(graph, params)
    operands = [x, state, weights.input, weights.output, weights.biases]
    for tensor in operands:
        bench.data[tensor] = (random.standard_normal(tensor.shape) * 0.5).astype(np.float32)
    made = rnn.rnn_fwd_sequence(graph, params, state, x, weights, bench.prog)
    back = rnn.rnnBwdSequence(graph, params, state, made.kept, weights, x, made.output, bench.prog)
    vx, h, wi, wo, bias = leaves = [leaf(bench.values(t)) for t in operands]
    outputs = []
    for t in range(4):
        h = getattr(torch, activation)(vx[t] @ wi[0] + h @ wo[0] + bias[0])
        outputs.append(h)
    shown = torch.stack(outputs)
    (shown * shown.detach()).sum().backward()
    device = [made.output, back.input, back.states[0], *vars(back.weights).values()]
    for got, wanted in zip(bench.run_both(*device), [shown.detach(), *(v.grad for v in leaves)], strict=True):
        assert_close(got, wanted.numpy(), f32)


@pytest.mark.parametrize("shape", [(4, 6, 10), (3, 7), (5, 1)])
def test_steps__row_major_sequences_of_any_shape__are_read_and_written(shape):
    bench = Bench(16)
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    source, target = bench.tensor(values), bench.tensor(np.zeros_like(values))
    first, last = (bench.tensor(np.array([n], np.uint32), layout=0) for n in (0, shape[0] - 1))
    step = bench.tensor(np.zeros(shape[1:], np.float32))
    rnn.slice_step(bench.graph, source, last, step, bench.prog)
    rnn.update_step(bench.graph, target, first, step, bench.prog)
    got = bench.run_both(step, target)
    assert np.array_equal(got[0], values[-1])
    assert np.array_equal(got[1][0], values[-1])
    assert not got[1][1:].any()


def test_rnn__bad_arguments__typed_errors_in_its_words():
    bench, params = Bench(4), rnn.RnnParams(f32, 2, 3, (8, 8))
    state, x = rnn.create_initial_state(bench.graph, params), rnn.create_input(bench.graph, params)
    weights = rnn.create_weights(bench.graph, params)
    with pytest.raises(TensorError, match=r"rnn: initial output .* needs \[2, 8\]"):
        rnn.rnn_fwd_sequence(bench.graph, params, x, x, weights, bench.prog)
    with pytest.raises(InvalidOptionError, match="neither recompute"):
        rnn.rnn_fwd_sequence(bench.graph, params, state, x, weights, bench.prog, options={"preCalcWeights": True})
    with pytest.raises(TensorError, match="is no step of"):
        rnn.slice_step(bench.graph, x, bench.tensor(np.zeros(1, np.uint32)), x, bench.prog)
