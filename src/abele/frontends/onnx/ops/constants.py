"""Tensors that are known, and what a graph says of shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.frontends.onnx.registry import Item, Known, NodeCall, op
from abele.frontends.onnx.types import device_type, element_type
from abele.network import Value
from abele.network.ops import build


@op("Constant")
def constant(call: NodeCall, **given: Any) -> Any:
    """The tensor that the node holds."""
    if len(given) != 1:
        raise call.wrong(f"holds {len(given)} values, not one")
    ((name, held),) = given.items()
    if name in ("value", "sparse_value"):
        return np.asarray(held)
    if name in ("value_int", "value_ints"):
        return np.asarray(held, np.int64)
    if name in ("value_float", "value_floats"):
        return np.asarray(held, np.float32)
    raise call.refuse(f"holds {name.removeprefix('value_')}, which do not exist on the device")


@op("ConstantOfShape")
def constant_of_shape(call: NodeCall, shape: Known, *, value: Any = None) -> Value:
    """One number at every element of a shape."""
    number = np.zeros(1, np.float32) if value is None else np.asarray(value)
    return build.full(call.net, number.reshape(-1)[0].item(), tuple(map(int, shape)), device_type(number.dtype))


@op("Shape")
def shape(call: NodeCall, value: Item, *, start: int = 0, end: int | None = None) -> Any:
    """The extents of a tensor, or of some of its dimensions."""
    low, high, _ = slice(start, end).indices(value.rank)
    return np.asarray(value.shape[low:high], np.int64)


@op("Size")
def size(call: NodeCall, value: Item) -> Any:
    """The number of elements of a tensor."""
    return np.asarray(value.size, np.int64)


@op("Range")
def range_(call: NodeCall, start: Known, limit: Known, delta: Known) -> Any:
    """Numbers from ``start`` up to ``limit``, with a step."""
    first, last, step = (np.asarray(a).reshape(-1)[0] for a in (start, limit, delta))
    if step == 0:
        raise call.wrong("has a step of 0")
    count = max(int(np.ceil((float(last) - float(first)) / float(step))), 0)
    call.made_here(count)
    return (np.arange(count) * step + first).astype(np.asarray(start).dtype)


@op("EyeLike")
def eye_like(call: NodeCall, value: Item, *, dtype: int | None = None, k: int = 0) -> Value:
    """Ones on a diagonal of a matrix of the operand's shape."""
    if value.rank != 2:
        raise call.wrong(f"takes a matrix, got {value.rank} dimensions")
    kind = device_type(value.dtype) if dtype is None else element_type(dtype)
    call.made_here(*value.shape)
    return call.net.constant(np.eye(value.shape[0], value.shape[1], k).astype(kind.np), kind)


@op("MelWeightMatrix")
def mel_weights(
    call: NodeCall,
    num_mel_bins: Known,
    dft_length: Known,
    sample_rate: Known,
    lower_edge_hertz: Known,
    upper_edge_hertz: Known,
    *,
    output_datatype: int = 1,
) -> Value:
    """Weights of triangular bands on the mel scale, [bins of a Fourier transform, bands]; all numbers are known."""
    bands, length, rate = (int(np.asarray(a).reshape(-1)[0]) for a in (num_mel_bins, dft_length, sample_rate))
    low, high = (
        2595 * np.log10(1 + float(np.asarray(a).reshape(-1)[0]) / 700) for a in (lower_edge_hertz, upper_edge_hertz)
    )
    edges = 700 * (10 ** ((np.arange(bands + 2) * ((high - low) / (bands + 2)) + low) / 2595) - 1)
    bins = np.floor((length + 1) * edges / rate).astype(int)
    made = np.zeros((length // 2 + 1, bands))
    for band in range(bands):
        first, centre, last = bins[band : band + 3]
        if centre == first:
            made[centre, band] = 1
        else:
            made[first : centre + 1, band] = np.arange(centre - first + 1) / (centre - first)
        if last > centre:
            made[centre:last, band] = (last - np.arange(centre, last)) / (last - centre)
    return call.constant(made, element_type(output_datatype))
