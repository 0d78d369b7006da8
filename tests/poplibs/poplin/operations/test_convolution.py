from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, LibraryCall, Sequence, Tensor
from abele.kernels.nest.reference import evaluate
from abele.numerics import ElementType, f16, f32
from abele.poplibs import poplin
from abele.poplibs.poplin import ConvParams
from abele.poplibs.poplin.lowering.contraction_steps import ContractionStage
from abele.poplibs.poputil.layout import create_activations, unmapped_activations
from poplibs.poplin.support import convolutions, reference_conv, run_body, system
from support.examples import examples

TOLERANCE = {f32: 1e-5, f16: 4e-3}


class Layer:
    """A convolution with its gradients, built, and PyTorch's results in float64."""

    def __init__(
        self,
        params: ConvParams,
        tiles: int = 16,
        dtype: ElementType = f32,
        partials: ElementType = f32,
        *,
        plain: bool = False,
    ) -> None:
        self.graph, self.prog = Graph(system(tiles)), Sequence()
        self.params, self.dtype = params, dtype
        self.x = self._activations(params.input_shape, plain)
        self.dz = self._activations(params.output_shape, plain)
        if plain:
            self.w = self.graph.variable(dtype, params.weights_shape).map_linear()
        else:
            self.w = poplin.create_weights(self.graph, params, dtype)
        arguments = {"params": params, "prog": self.prog, "partials_type": partials}
        self.y = poplin.convolution(self.graph, self.x, self.w, **arguments)
        self.dx = poplin.convolution_backward_data(self.graph, self.dz, self.w, **arguments)
        self.dw = poplin.calculate_weight_deltas(self.graph, self.dz, self.x, like=self.w, **arguments)

    def _activations(self, shape: tuple[int, ...], plain: bool) -> Tensor:
        if plain:
            return self.graph.variable(self.dtype, shape).map_linear()
        return create_activations(self.graph, self.dtype, shape)

    def check(self) -> None:
        """Hold bodies and kernels against PyTorch."""
        rng = np.random.default_rng(0)
        given = {
            t: rng.standard_normal(t.shape).astype(self.dtype.np).astype(np.float64) for t in (self.x, self.w, self.dz)
        }
        x, w = (torch.tensor(given[t], requires_grad=True) for t in (self.x, self.w))
        y = reference_conv(self.params, x, w)
        y.backward(torch.tensor(given[self.dz]))
        assert x.grad is not None
        assert w.grad is not None
        wanted = [y.detach().numpy(), x.grad.numpy(), w.grad.numpy()]
        found = run_body(self.graph, self.prog, given, self.y, self.dx, self.dw)
        for call, got, want in zip(self.prog, found, wanted, strict=True):
            size = TOLERANCE[self.dtype] * max(1.0, float(np.abs(want).max()))
            np.testing.assert_allclose(got, want, rtol=TOLERANCE[self.dtype], atol=2 * size)
            assert isinstance(call, LibraryCall)
            assert call.kernel is not None
            (exact,) = evaluate(call.kernel, [given[t] for t in call.inputs], precise=True)
            np.testing.assert_allclose(exact, want, rtol=1e-11, atol=1e-11)
            assert call.outputs[0].mapping.is_complete


@pytest.mark.parametrize("together", [4, 8, 12])
@pytest.mark.parametrize("kernel", [1, 3])
def test_convolution__channels_in_vectors__are_put_together_where_they_are_read(together: int, kernel: int) -> None:
    params = ConvParams(2, 48, 16, (7, 6), (kernel, kernel))
    graph, prog = Graph(system(24)), Sequence()
    x = unmapped_activations(graph, f16, params.input_shape, group=together).map_linear()
    w = poplin.create_weights(graph, params, f16)
    y = poplin.convolution(graph, x, w, params, prog)
    rng = np.random.default_rng(3)
    values = {t: rng.uniform(-1, 1, t.shape).astype(np.float16) for t in (x, w)}
    (got,) = run_body(graph, prog, values, y)
    operands = (torch.tensor(values[t].astype(np.float64)) for t in (x, w))
    np.testing.assert_allclose(got, reference_conv(params, *operands).numpy(), atol=2e-2)
    assert kernel != 1 or not any(made.stage is ContractionStage.REWRITE for made in graph.compute_sets)


@examples(8)
@given(convolutions(), st.sampled_from([4, 64, 1472]), st.booleans())
def test_convolution__any_params__is_pytorchs_with_gradients(params: ConvParams, tiles: int, plain: bool) -> None:
    Layer(params, tiles, plain=plain).check()


@examples(4)
@given(convolutions(), st.sampled_from([f16, f32]))
def test_convolution__halves__is_pytorchs_within_rounding(params: ConvParams, partials: ElementType) -> None:
    Layer(params, 16, f16, partials).check()


@examples(4)
@given(convolutions(max_rank=3).filter(lambda p: len(p.field) == 3 and np.prod(p.output_shape) < 2000))
def test_convolution__three_field_dimensions__is_pytorchs(params: ConvParams) -> None:
    Layer(params, 64).check()


@pytest.mark.parametrize(
    "params",
    [
        ConvParams(1, 1, 1, (1,), (1,)),
        ConvParams(1, 1, 1, (4,), (2,), stride=(3,)),
        ConvParams(2, 8, 8, (4,), (1,), stride=(3,), groups=8),
        ConvParams(32, 32, 16, (3, 3), (3, 3), padding_lower=1, padding_upper=1),
        ConvParams(2, 48, 20, (5,), (1,)),
        ConvParams(2, 32, 48, (5, 7), (1, 1)),
        ConvParams(2, 8, 16, (4, 6), (1, 1), groups=2),
        ConvParams(1, 2, 2, (2,), (3,), padding_lower=(4,), padding_upper=(4,)),
    ],
    ids=str,
)
def test_convolution__corner_cases__are_pytorchs(params: ConvParams) -> None:
    Layer(params).check()


def test_convolution__created_operands__forward_arranges_nothing() -> None:
    params = ConvParams(4, 32, 48, (6, 6), (3, 3))
    graph, prog = Graph(system(64)), Sequence()
    x, w = poplin.create_input(graph, params, f16), poplin.create_weights(graph, params, f16)
    poplin.convolution(graph, x, w, params, prog)
    assert not [c.name for c in graph.compute_sets if "arrange" in c.name]


def test_weight_deltas__like_weights__lie_on_their_tiles() -> None:
    layer = Layer(ConvParams(16, 32, 16, (5, 5), (3, 3)), 64)
    assert layer.dw.mapping.tile.tolist() == layer.w.mapping.tile.tolist()
    assert layer.dw.mapping.begin.tolist() == layer.w.mapping.begin.tolist()


def test_convolution__output__is_spread_over_the_tiles() -> None:
    params = ConvParams(64, 16, 32, (8, 8), (3, 3))
    graph = Graph(system(256))
    x, w = poplin.create_input(graph, params, f32), poplin.create_weights(graph, params, f32)
    mapping = poplin.convolution(graph, x, w, params, Sequence()).mapping
    held = np.bincount(mapping.tile, weights=mapping.length, minlength=256)
    assert held.max() <= 1.6 * mapping.size / 256


def test_convolution__channels_differ__names_the_tensor() -> None:
    graph = Graph(system(4))
    params = ConvParams(1, 4, 8, (5,), (3,))
    x, w = graph.variable(f32, (1, 3, 5)).map_linear(), poplin.create_weights(graph, params, f32)
    with pytest.raises(TensorError) as caught:
        poplin.convolution(graph, x, w, params, Sequence())
    assert "x is Tensor(f32[1, 3, 5] of" in str(caught.value)
    assert "the convolution needs shape [1, 4, 5]" in str(caught.value)
    assert "x has 3 channels in dimension 1, not 4" in str(caught.value)


def test_convolution__types_differ__names_both() -> None:
    graph = Graph(system(4))
    params = ConvParams(1, 4, 8, (5,), (3,))
    x, w = poplin.create_input(graph, params, f16), poplin.create_weights(graph, params, f32)
    with pytest.raises(TypeMismatchError, match="x 'activations' is f16, weights 'weights' is f32"):
        poplin.convolution(graph, x, w, params, Sequence())
