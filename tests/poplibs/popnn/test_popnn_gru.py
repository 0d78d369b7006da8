"""GRU layers against PyTorch in float64."""

import numpy as np
import pytest
from poplibs_kit import Bench, assert_close
from recurrent_kit import leaf, run_gru

from abele.errors import InvalidOptionError, TensorError
from abele.numerics import as_element_type
from abele.poplibs.popnn import gru

SIZES = 3, 8, 16, 4


def check(
    tiles=64,
    dtype="f32",
    lengths=None,
    options=None,
    split=False,
    attends=False,
    sizes=SIZES,
    modes=("tiles", "native"),
    **given,
):
    """Forward, backward and weight update agree with the reference."""
    batch, inputs, hidden, steps = sizes
    bench = Bench(tiles)
    graph = bench.graph
    counted = None if lengths is None else bench.tensor(np.array(lengths, np.uint32))
    params = gru.GruParams(dtype, batch, steps, (inputs, hidden), lengths=counted, **given)
    x, state = gru.create_input(graph, params), gru.create_initial_state(graph, params)
    weights = gru.create_weights(graph, params, options=options)
    scores = gru.create_attention(graph, params) if attends else None
    random = np.random.default_rng(0)

    def fill(tensor):
        bench.data[tensor] = (random.standard_normal(tensor.shape) * 0.5).astype(params.dtype.np)
        return leaf(bench.values(tensor))

    operands = [fill(t) for t in (x, state, weights.input, weights.output, weights.biases)]
    attention = fill(scores) if attends else None
    more = {"attention": scores, "options": options}
    made = gru.gru_fwd(graph, params, state, x, weights, bench.prog, **more)
    gradient = graph.clone(made.output, name="gradient")
    factor = fill(gradient).detach()
    back_given = state, made.intermediates, weights, x, gradient, bench.prog
    back = (gru.gru_bwd if split else gru.gru_bwd_with_wu)(graph, params, *back_given, **more)
    updated = gru.gru_wu(graph, params, back, x, bench.prog, options=options) if split else back.weights
    device = [made.output, back.input, back.state, updated.input, updated.output, updated.biases]
    after = params.reset_after
    keywords = {"after": after, "attention": attention, "lengths": lengths}
    outputs, h = run_gru(operands[0], operands[1], operands[2:], params.cell_order, **keywords)
    shown = outputs if params.output_full_sequence else h
    (shown * factor).sum().backward()
    wanted = [shown.detach(), *(t.grad for t in operands)]
    if attends:
        device.append(back.attention)
        wanted.append(attention.grad)
    for mode in modes:
        for one, reference in zip(bench.run(*device, mode=mode), wanted, strict=True):
            assert_close(one, reference.numpy(), as_element_type(dtype), 4 if dtype == "f16" else 1)


@pytest.mark.parametrize("reset_after", [False, True])
def test_gru__against_torch_in_float64__values_and_all_gradients_agree(reset_after):
    check(reset_after=reset_after)


NATIVE = {
    "one sample": {"sizes": (1, 8, 16, 4)},
    "odd sizes": {"sizes": (3, 5, 7, 4)},
    "one step": {"sizes": (2, 8, 8, 1)},
}


@pytest.mark.parametrize("reset_after", [False, True])
@pytest.mark.parametrize("given", NATIVE.values(), ids=NATIVE)
def test_gru__natively__values_and_all_gradients_agree_with_torch(given, reset_after):
    check(reset_after=reset_after, modes=["native"], **given)


@pytest.mark.parametrize("tiles", [4, 1472])
def test_gru__other_numbers_of_tiles__same_values(tiles):
    check(tiles, modes=["tiles"])


@pytest.mark.parametrize(
    "options", [{"recomputationMode": "full"}, {"preCalcWeights": True}, {"rnnStepsPerWU": 2}], ids=str
)
def test_gru__options__numbers_stay(options):
    check(options=options)


@pytest.mark.parametrize(
    "given", [{}, {"reset_after": True}, {"attends": True}, {"options": {"rnnStepsPerWU": 2}}], ids=str
)
def test_gru__more_steps_than_weights__updates_in_the_backward_loop_agree(given):
    check(sizes=(3, 8, 16, 8), modes=["tiles"], **given)


@pytest.mark.parametrize("reset_after", [False, True])
def test_gru__attention_lengths_and_shuffled_gates__agree(reset_after):
    order = ("update", "cell", "reset")
    check(reset_after=reset_after, attends=True, lengths=[4, 1, 3], cell_order=order)


def test_gru__weight_update_of_its_own__same_gradients():
    check(split=True, reset_after=True)


def test_gru__only_the_last_output__gradients_come_from_it():
    check(output_full_sequence=False, sizes=(2, 5, 7, 3))


def test_gru__half__within_its_rounding():
    check(dtype="f16", options={"weightAccumulatorsType": "float"}, modes=["tiles"])


def test_gru__bad_arguments__typed_errors_in_its_words():
    bench, params = Bench(4), gru.GruParams("f32", 2, 3, (8, 8), reset_after=True)
    given = bench.graph, params, gru.create_initial_state(bench.graph, params), gru.create_input(bench.graph, params)
    weights = gru.create_weights(bench.graph, params)
    flat = gru.GruWeights(weights.input, weights.output, weights.biases[:, 0])
    with pytest.raises(TensorError, match=r"gru: biases .* has shape \[3, 8\], needs \[3, 2, 8\]"):
        gru.gru_fwd(*given, flat, bench.prog)
    with pytest.raises(InvalidOptionError, match="cellAndTanh is an LSTM's"):
        gru.gru_fwd(*given, weights, bench.prog, options={"recomputationMode": "cellAndTanh"})
