"""CTC beam search against all alignments, and against a search with dictionaries."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Bench
from scipy.special import log_softmax, logsumexp

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Copy, LibraryCall
from abele.poplibs.popnn import ctc_infer
from support.examples import examples

Labels = tuple[int, ...]
TOLERANCE = {"float32": 1e-4, "float16": 1e-2}


def _by_alignments(log_probs: np.ndarray, blank: int) -> dict[Labels, float]:
    """Log-probability of every label sequence: all alignments [T, C] are gone through."""
    found: dict[Labels, list[float]] = defaultdict(list)
    steps, classes = log_probs.shape
    for alignment in product(range(classes), repeat=steps):
        labels = tuple(symbol for symbol, _ in groupby(alignment) if symbol != blank)
        found[labels].append(sum(log_probs[t, c] for t, c in enumerate(alignment)))
    return {labels: float(logsumexp(scores)) for labels, scores in found.items()}


def _by_prefixes(log_probs: np.ndarray, blank: int, width: int) -> list[tuple[Labels, float]]:
    """A beam search of its own: prefixes and probabilities in dictionaries."""
    beams: dict[Labels, tuple[float, float]] = {(): (1.0, 0.0)}
    for probs in np.exp(log_probs):
        after: dict[Labels, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for prefix, (silent, spoken) in beams.items():
            after[prefix][0] += (silent + spoken) * probs[blank]
            for symbol, p in enumerate(probs):
                if symbol == blank:
                    continue
                if prefix and prefix[-1] == symbol:
                    after[prefix][1] += spoken * p
                    after[(*prefix, symbol)][1] += silent * p
                else:
                    after[(*prefix, symbol)][1] += (silent + spoken) * p
        best = sorted(after.items(), key=lambda item: -sum(item[1]))[:width]
        # An extension of a beam that is itself a beam has been added to it above; one of a lost beam comes back anew.
        beams = {prefix: (a, b) for prefix, (a, b) in best if a + b > 0}
    return [(prefix, float(np.log(a + b))) for prefix, (a, b) in beams.items()]


def _data(seed: int, shape: tuple[int, int, int], dtype: str) -> np.ndarray:
    logits = np.random.default_rng(seed).standard_normal(shape) * 2
    return log_softmax(logits, axis=-1).astype(dtype)


def _decode(
    values: np.ndarray, lengths: list[int], blank: int, width: int, paths: int, *, tiles: int = 64, logits: bool = False
) -> list[np.ndarray]:
    bench = Bench(tiles)
    steps, batch, classes = values.shape
    plan = ctc_infer.plan(bench.graph, values.dtype, batch, steps, classes, width)
    data = ctc_infer.create_data_input(bench.graph, values.dtype, batch, steps, classes, plan)
    bench.prog.add(Copy(bench.tensor(values), data))
    given_lengths = bench.tensor(np.array(lengths, np.uint32))
    decoder = ctc_infer.beam_search_decoder_logits if logits else ctc_infer.beam_search_decoder_log_probabilities
    results = decoder(bench.graph, data, given_lengths, bench.prog, blank, width, paths, plan)
    return bench.run_both(*results)


def _paths(results: list[np.ndarray], sequence: int) -> list[tuple[Labels, float]]:
    """Label sequences and their log-probabilities, as decoded."""
    score, sizes, labels = (r[sequence] for r in results)
    return [(tuple(int(x) for x in row[:n]), float(s)) for s, n, row in zip(score, sizes, labels, strict=True)]


@examples(4)
@given(st.data())
def test_beam_search__beam_holds_everything__finds_the_most_likely_labels(data: st.DataObject) -> None:
    steps, classes = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 3))
    blank = data.draw(st.integers(0, classes - 1))
    dtype, tiles = data.draw(st.sampled_from(sorted(TOLERANCE))), data.draw(st.sampled_from([4, 64]))
    lengths = data.draw(st.lists(st.integers(0, steps), min_size=1, max_size=3))
    values = _data(data.draw(st.integers(0, 99)), (steps, len(lengths), classes), dtype)
    results = _decode(values, lengths, blank, 40, 5, tiles=tiles)
    for b, length in enumerate(lengths):
        wanted = _by_alignments(values[:length, b].astype(np.float64), blank)
        got = [(labels, score) for labels, score in _paths(results, b) if np.isfinite(score)]
        best = sorted(wanted.values(), reverse=True)[:5]
        assert len(got) == len(best)
        np.testing.assert_allclose([s for _, s in got], best, atol=TOLERANCE[dtype])
        np.testing.assert_allclose([wanted[labels] for labels, _ in got], best, atol=TOLERANCE[dtype])


@examples(4)
@given(st.integers(0, 99), st.integers(1, 9), st.integers(2, 12), st.integers(1, 6), st.sampled_from([4, 64]))
def test_beam_search__narrow_beam__follows_the_prefix_search(
    seed: int, steps: int, classes: int, width: int, tiles: int
) -> None:
    values = _data(seed, (steps, 2, classes), "float32")
    lengths = [steps, max(steps - 1, 1)]
    results = _decode(values, lengths, classes - 1, width, width, tiles=tiles)
    for b, length in enumerate(lengths):
        wanted = _by_prefixes(values[:length, b].astype(np.float64), classes - 1, width)
        got = [path for path in _paths(results, b) if np.isfinite(path[1])]
        assert [labels for labels, _ in got] == [labels for labels, _ in wanted]
        np.testing.assert_allclose([s for _, s in got], [s for _, s in wanted], atol=1e-4)


def test_beam_search__logits__are_normalised_first() -> None:
    logits = np.random.default_rng(1).standard_normal((4, 2, 5)).astype(np.float32) * 3
    from_logits = _decode(logits, [4, 3], 0, 6, 2, logits=True)
    from_log_probs = _decode(log_softmax(logits, axis=-1), [4, 3], 0, 6, 2)
    np.testing.assert_allclose(from_logits[0], from_log_probs[0], atol=1e-4)
    np.testing.assert_array_equal(from_logits[2], from_log_probs[2])


@pytest.mark.parametrize("tiles", [4, 1472])
def test_beam_search__any_number_of_tiles__same_results(tiles: int) -> None:
    values = _data(7, (6, 3, 40), "float32")
    for one, other in zip(*(_decode(values, [6, 5, 0], 3, 5, 3, tiles=t) for t in (64, tiles)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_beam_search__beyond_the_labels__stands_the_blank() -> None:
    values = np.log(np.array([[[0.1, 0.8, 0.1]], [[0.8, 0.1, 0.1]], [[0.1, 0.8, 0.1]]], np.float32))
    score, sizes, labels = _decode(values, [3], 0, 8, 2)
    assert sizes[0, 0] == 2
    np.testing.assert_array_equal(labels[0, 0], [1, 1, 0])
    assert score[0, 0] > score[0, 1]


def test_beam_search__symbols_of_probability_zero__are_never_decoded() -> None:
    values = np.array([[[0.0, -np.inf, -np.inf]]] * 3, np.float32)
    score, sizes, _ = _decode(values, [3], 2, 4, 3)
    np.testing.assert_array_equal(score[0], [0.0, -np.inf, -np.inf])
    np.testing.assert_array_equal(sizes[0], [1, 0, 0])


def test_plan__many_classes__are_spread() -> None:
    graph = Bench(64).graph
    assert len(ctc_infer.plan(graph, "float", 2, 10, 3, 1).shares) <= 3
    wide = ctc_infer.plan(graph, "half", 2, 10, 5000, 4)
    assert 1 < len(wide.shares) <= 32
    assert sum(size for _, size in wide.shares) == 5000
    assert str(wide) == f"beam search of 2 x 10 x 5000 f16, 4 beams, classes in {len(wide.shares)} parts"


def test_virtual_graph__everything_stays_inside() -> None:
    bench = Bench(16)
    part = bench.graph.virtual(8, 16)
    values = _data(3, (4, 2, 6), "float32")
    plan = ctc_infer.plan(part, "float", 2, 4, 6, 3)
    data = ctc_infer.create_data_input(part, "float", 2, 4, 6, plan)
    lengths = bench.tensor(np.array([4, 2], np.uint32))
    bench.prog.add(Copy(bench.tensor(values), data))
    results = ctc_infer.beam_search_decoder_log_probabilities(part, data, lengths, bench.prog, 0, 3, 2, plan)
    assert all(group.tile.min() >= 8 for cs in bench.graph.compute_sets for group in cs.groups)
    for one, other in zip(bench.run(*results), _decode(values, [4, 2], 0, 3, 2), strict=True):
        np.testing.assert_array_equal(one, other)


def test_decoder__is_one_call_with_poplibs_names() -> None:
    bench = Bench(4)
    plan = ctc_infer.plan(bench.graph, "float", 1, 2, 3, 2)
    data = ctc_infer.createDataInput(bench.graph, "float", 1, 2, 3, plan)
    lengths = bench.tensor(np.array([2], np.uint32))
    ctc_infer.beamSearchDecoderLogits(bench.graph, data, lengths, bench.prog, 0, 2, 1, plan)
    (call,) = bench.prog
    assert isinstance(call, LibraryCall)
    assert call.name == "popnn.ctc_infer.beam_search_decoder_logits"


def test_decoder__wrong_arguments__are_named() -> None:
    bench = Bench(4)
    graph, prog, decode = bench.graph, bench.prog, ctc_infer.beam_search_decoder_log_probabilities
    plan = ctc_infer.plan(graph, "float", 1, 2, 3, 2)
    data, lengths = bench.tensor(np.zeros((2, 1, 3), np.float32)), bench.tensor(np.array([2], np.uint32))
    half, signed = bench.tensor(np.zeros((2, 1, 3), np.float16)), bench.tensor(np.array([2], np.int32))
    with pytest.raises(TypeMismatchError, match=r"takes f32 data, as planned, and u32 lengths, got Tensor\(f16"):
        decode(graph, half, lengths, prog, 0, 2, 1, plan)
    with pytest.raises(TypeMismatchError, match="u32 lengths"):
        decode(graph, data, signed, prog, 0, 2, 1, plan)
    with pytest.raises(TensorError, match=r"does not fit the plan, beam search of 1 x 2 x 3 f32, 2 beams"):
        decode(graph, data[:1], lengths, prog, 0, 2, 1, plan)
    with pytest.raises(TensorError, match=r"lengths of 1 sequence are \[1\], got Tensor\(u32\[1, 1\]"):
        decode(graph, data, lengths.expand_dims(0), prog, 0, 2, 1, plan)
    with pytest.raises(InvalidOptionError, match="the blank class 3 is none of the 3 classes"):
        decode(graph, data, lengths, prog, 3, 2, 1, plan)
    with pytest.raises(InvalidOptionError, match="the plan is for 2 beams, got a width of 4"):
        decode(graph, data, lengths, prog, 0, 4, 1, plan)
    with pytest.raises(InvalidOptionError, match="of 2 beams 1 to 2 paths can be returned, got 3"):
        decode(graph, data, lengths, prog, 0, 2, 3, plan)
    with pytest.raises(InvalidOptionError, match="option 'partialsType' takes one of float, got 'half'"):
        decode(graph, data, lengths, prog, 0, 2, 1, plan, options={"partialsType": "half"})
    with pytest.raises(TensorError, match="1 sequences, 2 steps, 0 beams, 3 classes"):
        ctc_infer.plan(graph, "float", 1, 2, 3, 0)
    with pytest.raises(TypeMismatchError, match="takes f32 or f16 data, got i32"):
        ctc_infer.plan(graph, "int", 1, 2, 3, 2)
    with pytest.raises(TensorError, match=r"f32\[2, 1, 4\] does not fit the plan"):
        ctc_infer.create_data_input(graph, "float", 1, 2, 4, plan)
    assert not list(prog)
