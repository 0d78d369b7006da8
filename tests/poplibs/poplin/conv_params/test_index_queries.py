"""Inputs, kernel positions and outputs of a convolution that meet, against a convolution of ones done by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import TensorError
from abele.poplibs import poplin


@st.composite
def one_dimension(draw: st.DrawFn) -> poplin.ConvParams:
    small = st.integers(1, 4)
    field, kernel = draw(st.integers(1, 9)), draw(small)
    dilation, input_dilation, stride = draw(small), draw(small), draw(small)
    span = (kernel - 1) * dilation + 1
    lower = draw(st.integers(0, 3))
    upper = max(draw(st.integers(0, 3)), span - ((field - 1) * input_dilation + 1) - lower)
    return poplin.ConvParams(
        1,
        1,
        1,
        (field,),
        (kernel,),
        (stride,),
        (dilation,),
        (lower,),
        (upper,),
        (input_dilation,),
        (draw(st.booleans()),),
    )


def meetings(params: poplin.ConvParams) -> set[tuple[int, int, int]]:
    """(output, kernel position, input) that meet, by walking the padded and dilated field."""
    places: list[int | None] = [None] * params.padding_lower[0]
    for i in range(params.field[0]):
        places += [i] + [None] * (params.input_dilation[0] - 1 if i + 1 < params.field[0] else 0)
    places += [None] * params.padding_upper[0]
    found = set()
    for o in range(params.output_field[0]):
        for k in range(params.kernel[0]):
            turned = params.kernel[0] - 1 - k if params.flip[0] else k
            at = places[o * params.stride[0] + turned * params.dilation[0]]
            if at is not None:
                found.add((o, k, at))
    return found


@given(one_dimension())
def test_indices__every_pair__meet_as_the_field_is_walked(params: poplin.ConvParams) -> None:
    wanted = meetings(params)
    outputs, kernels, inputs = range(params.output_field[0]), range(params.kernel[0]), range(params.field[0])
    by_input = {(o, k, poplin.get_input_index(0, o, k, params)) for o in outputs for k in kernels}
    by_kernel = {(o, poplin.get_kernel_index(0, o, i, params), i) for o in outputs for i in inputs}
    by_output = {(poplin.get_output_index(0, i, k, params), k, i) for i in inputs for k in kernels}
    for found in (by_input, by_kernel, by_output):
        assert {f for f in found if None not in f} == wanted


@given(one_dimension(), st.data())
def test_ranges__of_some__hold_all_that_meet(params: poplin.ConvParams, data: st.DataObject) -> None:
    def some(extent: int) -> tuple[int, int]:
        begin = data.draw(st.integers(0, extent - 1))
        return begin, data.draw(st.integers(begin + 1, extent))

    o, k, i = some(params.output_field[0]), some(params.kernel[0]), some(params.field[0])
    met = meetings(params)
    for got, column, wanted in (
        (poplin.get_input_range(0, o, k, params), 2, [m for m in met if o[0] <= m[0] < o[1] and k[0] <= m[1] < k[1]]),
        (poplin.get_output_range(0, i, k, params), 0, [m for m in met if i[0] <= m[2] < i[1] and k[0] <= m[1] < k[1]]),
        (poplin.get_kernel_range(0, o, i, params), 1, [m for m in met if o[0] <= m[0] < o[1] and i[0] <= m[2] < i[1]]),
    ):
        indices = [m[column] for m in wanted]
        assert got == ((min(indices), max(indices) + 1) if indices else (0, 0))


def test_index__outside__is_refused() -> None:
    params = poplin.ConvParams(1, 1, 1, (5,), (3,))
    with pytest.raises(TensorError, match=r"no output indices \[3, 4\) in dimension 0"):
        poplin.get_input_index(0, 3, 0, params)
    with pytest.raises(TensorError, match="no field dimension 1 among 1"):
        poplin.get_kernel_range(1, (0, 1), (0, 1), params)


def test_derived_params__names_of_poplibs__are_those_of_the_parameters() -> None:
    params = poplin.ConvParams(2, 3, 4, (7,), (3,), stride=2)
    assert poplin.getGradientParams(params) == params.gradient_params()
    assert poplin.getWeightUpdateParams(params) == params.weight_update_params()
