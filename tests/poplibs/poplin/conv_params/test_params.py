from __future__ import annotations

import pytest
import torch
from hypothesis import given

from abele.errors import TensorError
from abele.poplibs.poplin.conv_params.params import ConvParams
from poplibs.poplin.support import convolutions, reference_conv


@given(convolutions(max_rank=3))
def test_output_shape__any_convolution__is_pytorchs(params: ConvParams) -> None:
    out = reference_conv(params, torch.zeros(params.input_shape), torch.zeros(params.weights_shape))
    assert tuple(out.shape) == params.output_shape


@given(convolutions())
def test_gradient_params__any_convolution__have_the_axes_of_the_gradient(params: ConvParams) -> None:
    gradient = params.gradient_params()
    assert gradient.axes == tuple(axis.input_gradient() for axis in params.axes)
    assert gradient.output_shape == params.input_shape
    assert gradient.input_shape == params.output_shape


def test_macs__padded_convolution__leave_out_padding() -> None:
    params = ConvParams(2, 3, 5, (4,), (3,), padding_lower=1, padding_upper=1)
    assert params.macs == 2 * 3 * 5 * (3 * 4 - 2)


def test_conv_params__one_number__holds_for_every_dimension() -> None:
    params = ConvParams(1, 1, 1, (8, 8), 3, stride=2, padding_lower=1)
    assert (params.kernel, params.stride, params.padding_lower, params.dilation) == ((3, 3), (2, 2), (1, 1), (1, 1))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"groups": 2, "in_channels": 3}, "3 in_channels do not divide into 2 groups"),
        ({"groups": 2, "out_channels": 3}, "3 out_channels do not divide into 2 groups"),
        ({"batch": 0}, "batch is 0, it must be at least 1"),
        ({"stride": (0,)}, r"stride \[0\] has an extent below 1"),
        ({"kernel": (3, 3)}, r"kernel \[3, 3\] has 2 entries, the field has 1 dimensions"),
        ({"kernel": (9,)}, "(?s)does not fit the field in dimension 0.*spans 9 elements, the padded field has 6"),
    ],
)
def test_conv_params__impossible__says_what_is_wrong(change: dict[str, object], text: str) -> None:
    given = {"batch": 1, "in_channels": 2, "out_channels": 2, "field": (6,), "kernel": (3,)}
    with pytest.raises(TensorError) as caught:
        ConvParams(**(given | change))  # type: ignore[arg-type]
    assert pytest.importorskip("re").search(text, str(caught.value))
