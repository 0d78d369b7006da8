"""Windows as columns of a matrix, and columns added up to windows: ``unfold`` and ``fold`` of images."""

from __future__ import annotations

from collections.abc import Sequence

from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.network import Value
from abele.network.ops import columns


@aten("aten.im2col")
def windows_as_columns(
    call: OperatorCall,
    value: Value,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """[batch, channels · kernel, windows] of an image [batch, channels, height, width]."""
    windows = columns.ColumnWindows(value.shape[-2:], kernel, dilation, padding, padding, stride)
    return columns.windows_as_columns(call.net, value, windows)


@aten("aten.col2im")
def columns_as_windows(
    call: OperatorCall,
    value: Value,
    size: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """The image [batch, channels, height, width] in which every window adds its column to its elements."""
    windows = columns.ColumnWindows(tuple(size), kernel, dilation, padding, padding, stride)
    return columns.columns_as_windows(call.net, value, windows, call.shape[:-2])
