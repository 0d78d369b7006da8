"""LSTM layers against PyTorch in float64."""

import numpy as np
import pytest
import torch
from poplibs_kit import Bench, assert_close
from recurrent_kit import leaf, run_lstm

from abele.errors import EngineError, InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Copy, Sequence, SetFloatingPointBehaviour
from abele.numerics import as_element_type
from abele.poplibs.popnn import lstm
from abele.runtime import Engine

SIZES = 3, 8, 16, 4


def layer(tiles=64, dtype="f32", lengths=None, options=None, split=False, sizes=SIZES, seed=0, **given):
    """Forward, backward and weight update; device tensors and their references, by name."""
    batch, inputs, hidden, steps = sizes
    bench = Bench(tiles)
    graph = bench.graph
    counted = None if lengths is None else bench.tensor(np.array(lengths, np.uint32))
    params = lstm.LstmParams(dtype, batch, steps, (inputs, hidden), lengths=counted, **given)
    x, state = lstm.create_input(graph, params), lstm.create_initial_state(graph, params)
    weights = lstm.create_weights(graph, params, options=options)
    random = np.random.default_rng(seed)

    def fill(tensor):
        bench.data[tensor] = (random.standard_normal(tensor.shape) * 0.5).astype(params.dtype.np)
        return leaf(bench.values(tensor))

    operands = [fill(t) for t in (x, state.output, state.cell_state, weights.input, weights.output, weights.biases)]
    made = lstm.lstm_fwd(graph, params, state, x, weights, bench.prog, options=options)
    gradient = graph.clone(made.output, name="gradient")
    factor = fill(gradient).detach()
    given_state = state, made.intermediates, weights, x, gradient
    if split:
        back = lstm.lstm_bwd(graph, params, *given_state, bench.prog, options=options)
        updated = lstm.lstm_wu(graph, params, back, x, bench.prog, options=options)
    else:
        back = lstm.lstm_bwd_with_wu(graph, params, *given_state, bench.prog, options=options)
        updated = back.weights
    device = [made.output, made.cell_state, back.input, back.state.output, back.state.cell_state]
    device += [updated.input, updated.output, updated.biases]
    vx, vh, vc, *w = operands
    outputs, h, c = run_lstm(vx, (vh, vc), w, params.cell_order, lengths)
    shown = outputs if params.output_full_sequence else h
    (shown * factor).sum().backward()
    wanted = [shown.detach(), c.detach(), *(t.grad for t in operands)]
    return bench, device, [w.numpy() for w in wanted]


BOTH = "tiles", "native"


def check(bench, device, wanted, dtype="f32", factor=1.0, modes=BOTH):
    device, wanted = zip(*((d, w) for d, w in zip(device, wanted, strict=True) if d is not None), strict=True)
    for mode in modes:
        for got, reference in zip(bench.run(*device, mode=mode), wanted, strict=True):
            assert_close(got, reference, as_element_type(dtype), factor)


def test_lstm__against_torch_in_float64__values_and_all_gradients_agree():
    check(*layer())


@pytest.mark.parametrize("tiles", [4, 1472])
def test_lstm__other_numbers_of_tiles__same_values(tiles):
    check(*layer(tiles), modes=["tiles"])


@pytest.mark.parametrize(
    "options",
    [
        {"recomputationMode": "full"},
        {"recomputationMode": "cellAndTanh"},
        {"preCalcWeights": True},
        {"rnnStepsPerWU": 2},
        {"availableMemoryProportion": 0.2, "rnnCodeReuse": "true"},
    ],
)
def test_lstm__options__numbers_stay(options):
    check(*layer(options=options))


def test_lstm__shuffled_gates__weights_follow_the_order():
    check(*layer(cell_order=("input", "output", "forget", "cell")))


def test_lstm__weight_update_of_its_own__same_gradients():
    check(*layer(split=True))


def of_own_loop(sizes, **given):
    """True if weights are updated in a loop of their own."""
    bench, device, wanted = layer(sizes=sizes, **given)
    check(bench, device, wanted, modes=["tiles"])
    return any("slice_deltas" in name for name in bench.executable.report.steps["name"])


@pytest.mark.parametrize("options", [None, {"rnnStepsPerWU": 2}], ids=str)
def test_lstm__turned_weights_or_gates_of_all_steps__the_fewer_elements_live_through_the_backward_pass(options):
    assert of_own_loop((2, 9, 16, 12), options=options)
    assert not of_own_loop((2, 8, 16, 12), options=options)


def test_lstm__sizes_that_divide_into_nothing__agree():
    check(*layer(sizes=(2, 5, 7, 3)))


def test_lstm__only_the_last_output__gradients_come_from_it():
    check(*layer(output_full_sequence=False))


@pytest.mark.parametrize("mode", ["none", "cellAndTanh"])
def test_lstm__samples_of_different_lengths__tails_are_zero_and_states_stay(mode):
    check(*layer(lengths=[4, 1, 3], options={"recomputationMode": mode}))


def test_lstm__half__within_its_rounding():
    check(*layer(dtype="f16", options={"weightAccumulatorsType": "float"}), dtype="f16", factor=4, modes=["tiles"])


NATIVE = {
    "one sample": {"sizes": (1, 8, 16, 4)},
    "odd sizes": {"sizes": (3, 5, 7, 4)},
    "one step": {"sizes": (2, 8, 8, 1)},
    "no input gradient": {"calc_input_gradients": False},
}


@pytest.mark.parametrize("given", NATIVE.values(), ids=NATIVE)
def test_lstm__natively__values_and_all_gradients_agree_with_torch(given):
    check(*layer(**given), modes=["native"])


def test_lstm__natively__half_within_its_rounding():
    check(*layer(dtype="f16"), dtype="f16", factor=4, modes=["native"])


def test_lstm__natively__many_units__any_number_of_threads_gives_the_same_bits_near_torch_s():
    bench, device, wanted = layer(sizes=(4, 24, 100, 3))
    check(bench, device, wanted, modes=["native"])
    one, three = bench.run(*device, mode="native"), bench.run(*device, mode="native", threads=3)
    assert all(np.array_equal(a, b) for a, b in zip(one, three, strict=True))


def test_lstm__natively__products_that_no_step_waits_for_are_made_for_all_steps_at_once():
    bench, device, _ = layer()
    with Engine(bench.executable, mode="native", keep=device) as engine:
        listing = engine.listing()
    before, after = listing[: listing.index("LOOP")], listing[listing.rindex("NEXT") :]
    assert "lstm_fwd/input_products" in before
    assert "weights_gradient" not in listing[: listing.rindex("NEXT")]
    assert "input_weights_gradient" in after
    assert "DynamicSlice" not in listing


@pytest.mark.parametrize("looks", ["program", "host", "nothing"])
def test_lstm__natively__what_is_kept_has_its_own_order_wherever_something_looks(looks):
    bench = Bench(16)
    params = lstm.LstmParams("f32", 2, 3, (8, 8))
    x, state = lstm.create_input(bench.graph, params), lstm.create_initial_state(bench.graph, params)
    weights = lstm.create_weights(bench.graph, params)
    random = np.random.default_rng(2)
    for tensor in (x, state.output, state.cell_state, weights.input, weights.output, weights.biases):
        bench.data[tensor] = random.standard_normal(tensor.shape).astype(np.float32)
    made = lstm.lstm_fwd(bench.graph, params, state, x, weights, bench.prog)
    kept, copied = made.intermediates, bench.graph.clone(made.intermediates, name="copied")
    shown = {"program": [made.output, copied], "host": [made.output, kept], "nothing": [made.output]}[looks]
    if looks == "program":
        bench.prog.add(Copy(kept, copied))
    bench.run_both(*shown)
    with Engine(bench.executable, mode="native") as engine:
        if looks != "program":
            with pytest.raises(EngineError, match="cannot be read: in native mode it only lives inside"):
                engine[kept]
            with pytest.raises(EngineError, match="cannot be written: in native mode it only lives inside"):
                engine[kept] = 0.0


def test_lstm__natively__backward_alone_takes_what_was_kept_from_the_host():
    bench = Bench(16)
    graph, params = bench.graph, lstm.LstmParams("f32", 2, 3, (8, 8))
    x, state = lstm.create_input(graph, params), lstm.create_initial_state(graph, params)
    weights = lstm.create_weights(graph, params)
    unused = Sequence()
    made = lstm.lstm_fwd(graph, params, state, x, weights, unused)
    random = np.random.default_rng(3)
    for tensor in (x, state.output, state.cell_state, weights.input, weights.output, made.intermediates, made.output):
        bench.data[tensor] = random.random(tensor.shape, dtype=np.float32)
    given = params, state, made.intermediates, weights, x, made.output, bench.prog
    back = lstm.lstm_bwd_with_wu(graph, *given)
    shown = [back.input, back.weights.input, back.weights.output]
    wanted = bench.run(*shown)
    # Without ``keep`` for what is written.
    with Engine(bench.executable, mode="native", keep=shown) as engine:
        for tensor, array in bench.data.items():
            engine[tensor] = array
        engine.run()
        for tensor, reference in zip(shown, wanted, strict=True):
            assert_close(engine[tensor], reference, params.dtype)


def test_lstm__stochastic_rounding_is_on__loops_of_the_host_round_at_random():
    bench, device, wanted = layer(dtype="f16")
    bench.prog.steps.insert(0, SetFloatingPointBehaviour(stochastic_rounding=True))
    with Engine(bench.executable, mode="native", keep=device) as engine:
        assert "DynamicSlice" not in engine.listing()
        assert "random(rounding seed" in engine.listing()
    for got, reference in zip(bench.run(*device, mode="native"), wanted, strict=True):
        assert_close(got, reference, as_element_type("f16"), 8)


def test_lstm__inference__keeps_nothing():
    bench = Bench(4)
    params = lstm.LstmParams("f32", 2, 3, (8, 8))
    state, x = lstm.create_initial_state(bench.graph, params), lstm.create_input(bench.graph, params)
    weights = lstm.create_weights(bench.graph, params)
    given = bench.graph, params, state
    made = lstm.lstmFwd(*given, x, weights, bench.prog, options={"inferenceOnly": True})
    assert made.intermediates is None
    with pytest.raises(TensorError, match="needs the forward pass's intermediates"):
        lstm.lstm_bwd(*given, made.intermediates, weights, x, made.output, bench.prog)


def test_lstm__products_of_the_input_given__as_if_multiplied():
    bench, params = Bench(16), lstm.LstmParams("f32", 2, 3, (8, 8), do_input_weight_calc=False)
    graph, random = bench.graph, np.random.default_rng(1)
    x, state = lstm.create_input(graph, params), lstm.create_initial_state(graph, params)
    weights = lstm.create_weights(graph, params)
    for tensor in (x, state.output, state.cell_state, weights.output, weights.biases):
        bench.data[tensor] = random.standard_normal(tensor.shape).astype(np.float32)
    made = lstm.lstm_fwd(graph, params, state, x, weights, bench.prog)
    back = lstm.lstm_bwd(graph, params, state, made.intermediates, weights, x, made.output, bench.prog)
    products, h, c, wo, bias = (
        leaf(bench.values(t)) for t in (x, state.output, state.cell_state, weights.output, weights.biases)
    )
    empty, none = torch.zeros(4, 1, 8, dtype=torch.float64), torch.zeros(3, 2, 1, dtype=torch.float64)
    outputs = []
    for t in range(3):
        one, h, c = run_lstm(none[:1], (h, c), (empty, wo, products[t] + bias[:, None]), params.cell_order)
        outputs.append(one[0])
    shown = torch.stack(outputs)
    (shown * shown.detach()).sum().backward()
    got = bench.run(made.output, back.input)
    assert_close(got[0], shown.detach().numpy(), params.dtype)
    assert_close(got[1], products.grad.numpy(), params.dtype, 4)


def test_lstm__bad_arguments__typed_errors_in_its_words():
    with pytest.raises(InvalidOptionError, match="cell order forget, input, cell"):
        lstm.LstmParams("f32", 2, 3, (8, 8), cell_order=("forget", "input", "cell"))
    with pytest.raises(InvalidOptionError, match="activation 'gelu'"):
        lstm.LstmParams("f32", 2, 3, (8, 8), activation="gelu")
    with pytest.raises(TypeMismatchError, match="data type i32"):
        lstm.LstmParams("i32", 2, 3, (8, 8))
    with pytest.raises(TensorError, match="0 steps"):
        lstm.LstmParams("f32", 2, 0, (8, 8))
    bench, params = Bench(4), lstm.LstmParams("f32", 2, 3, (8, 8))
    with pytest.raises(TensorError, match="lengths are u32 of 1 or 2"):
        lstm.LstmParams("f32", 2, 3, (8, 8), lengths=bench.tensor(np.zeros(5, np.uint32)))
    state, weights = lstm.create_initial_state(bench.graph, params), lstm.create_weights(bench.graph, params)
    wrong = bench.tensor(np.zeros((3, 2, 9), np.float32))
    with pytest.raises(TensorError, match=r"lstm: input .* has shape \[3, 2, 9\], needs \[3, 2, 8\]"):
        lstm.lstm_fwd(bench.graph, params, state, wrong, weights, bench.prog)
    x = lstm.create_input(bench.graph, params)
    for options, text in (({"numShards": 2}, "numShards"), ({"rnnStepsPerWU": 2}, "does not divide the 3 steps")):
        with pytest.raises(InvalidOptionError, match=text):
            lstm.lstm_fwd(bench.graph, params, state, x, weights, bench.prog, options=options)
