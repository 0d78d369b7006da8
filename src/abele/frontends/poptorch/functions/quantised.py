"""Layers whose weights are quantised: fully connected ones, and embeddings.

``QuantisedLinear.from_linear(torch.nn.Linear(1536, 576), "int4-64")`` holds 442,368 bytes of codes and 55,296 of
scales and offsets: 4.5 bits per weight, where float32 takes 32. They are buffers, saved with the model; they are frozen
when it is trained, and gradients pass through to what comes before.
"""

from __future__ import annotations

from typing import Any, Self

import torch

from abele.counts import check_counts
from abele.errors import TensorError, TypeMismatchError
from abele.frontends.poptorch.capture.quantised_products import numbers, quantised_embedding, quantised_linear
from abele.weights import QuantisedMatrix, quantise
from abele.weights.quantised import check_group, kind_of_codes

_TYPES = {"int8": torch.int8, "int4": torch.uint8, "f143": torch.uint8}
_WIDE = (torch.float32, torch.float16)


class _Quantised(torch.nn.Module):
    """Codes, scales and offsets of a matrix [rows, columns] as buffers, zeros at first.

    Attributes:
        kind: ``int8``, ``int4`` or ``f143``.
        group: Columns of a group.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    offsets: torch.Tensor | None

    def __init__(
        self,
        rows: int,
        columns: int,
        kind: str,
        group: int | None,
        *,
        offsets: bool | None = None,
        scale_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        held = kind_of_codes(kind)
        self.kind, self.group = kind, columns if group is None else group
        check_counts(rows=rows, columns=columns, group=self.group)
        check_group(columns, self.group, held.per_byte)
        has_offsets = kind == "int4" if offsets is None else offsets
        if has_offsets and kind == "f143":
            raise TensorError("8-bit floats have no offsets")
        dtype = scale_dtype or (torch.float16 if kind == "int4" else torch.float32)
        if dtype not in _WIDE:
            raise TypeMismatchError(f"scales are float16 or float32, not {dtype}")
        shape = (rows, columns // self.group)
        self.register_buffer("codes", torch.zeros((rows, columns // held.per_byte), dtype=_TYPES[kind]))
        self.register_buffer("scales", torch.zeros(shape, dtype=dtype))
        self.register_buffer("offsets", torch.zeros(shape, dtype=dtype) if has_offsets else None)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """Moved or cast as PyTorch does, but for the scales, whose type is part of the format."""
        kept = {name: getattr(self, name) for name in ("scales", "offsets")}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, before in kept.items():
            if before is not None and getattr(self, name).dtype != before.dtype:
                setattr(self, name, before.to(getattr(self, name).device))
        return self

    def _hold(self, matrix: QuantisedMatrix) -> Self:
        """Take the arrays of a matrix over."""
        self.codes = torch.from_numpy(matrix.codes.copy())
        self.scales = torch.from_numpy(matrix.scales.copy())
        self.offsets = None if matrix.offsets is None else torch.from_numpy(matrix.offsets.copy())
        return self

    def dequantised(self) -> torch.Tensor:
        """Numbers of the weights, float32 [rows, columns]."""
        return numbers(self.codes, self.scales, self.offsets, self.kind, self.group)

    @property
    def matrix(self) -> QuantisedMatrix:
        """The weights as NumPy arrays, which share this layer's memory."""
        offsets = None if self.offsets is None else self.offsets.detach().cpu().numpy()
        codes, scales = (t.detach().cpu().numpy() for t in (self.codes, self.scales))
        return QuantisedMatrix(self.kind, codes, scales, offsets, self.group)

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and offsets."""
        parts = [self.codes, self.scales] + ([] if self.offsets is None else [self.offsets])
        return sum(t.nbytes for t in parts)

    def _text(self) -> str:
        bits = 8 * self.nbytes / (self.codes.numel() * kind_of_codes(self.kind).per_byte)
        return f"{self.kind}, groups of {self.group:,}, {bits:.4g} bits per weight"


class QuantisedLinear(_Quantised):
    """``x · Wᵀ + bias`` with a quantised weight W [out, in].

    Args:
        in_features: Features that the layer reads.
        out_features: Features that it makes.
        bias: True to add a bias, a parameter.
        kind: ``int8``, ``int4`` or ``f143``.
        group: Columns that share a scale; all of a row by default.
        offsets: True if groups have offsets; by default int4's have.
        scale_dtype: Of scales and offsets; by default float16 for int4, else float32.

    Raises:
        InvalidOptionError: No such kind.
        TensorError: Features that are no whole number of groups.
    """

    bias: torch.nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        kind: str = "int8",
        group: int | None = None,
        offsets: bool | None = None,
        scale_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(out_features, in_features, kind, group, offsets=offsets, scale_dtype=scale_dtype)
        self.in_features, self.out_features = in_features, out_features
        self.register_parameter("bias", torch.nn.Parameter(torch.zeros(out_features)) if bias else None)

    @classmethod
    def from_linear(cls, linear: torch.nn.Linear, scheme: str) -> Self:
        """A layer of a float layer's weight, quantised by a scheme of :func:`abele.weights.quantise`; its own bias."""
        if not isinstance(linear, torch.nn.Linear):
            raise TypeMismatchError(f"from_linear takes a torch.nn.Linear, got {type(linear).__name__}")
        matrix = quantise(linear.weight.detach().float().cpu().numpy(), scheme)
        return cls.from_matrix(matrix, linear.bias)

    @classmethod
    def from_matrix(cls, matrix: QuantisedMatrix, bias: torch.Tensor | None = None) -> Self:
        """A layer of a quantised matrix, as files of weights have it."""
        outputs, inputs = matrix.shape
        made = cls(inputs, outputs, bias is not None, kind=matrix.kind, group=matrix.group)
        made._hold(matrix)
        if bias is not None:
            if tuple(bias.shape) != (outputs,):
                raise TensorError(f"a bias {list(bias.shape)} does not fit {outputs:,} outputs")
            made.bias = torch.nn.Parameter(bias.detach().clone())
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., out] of x [..., in], in x's type."""
        return quantised_linear(
            x, self.codes, self.scales, self.offsets, kind=self.kind, group=self.group, bias=self.bias
        )

    def extra_repr(self) -> str:
        """Sizes and format."""
        bias = self.bias is not None
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={bias}, {self._text()}"


class QuantisedEmbedding(_Quantised):
    """Rows of a quantised table by their numbers.

    Args:
        num_embeddings: Rows of the table.
        embedding_dim: Width of a row.
        kind: ``int8``, ``int4`` or ``f143``.
        group: Columns that share a scale; all of a row by default.
        dtype: Type of the rows that are given.
        offsets: True if groups have offsets; by default int4's have.
        scale_dtype: As of :class:`QuantisedLinear`.

    Attributes:
        dtype: Type of the rows that are given.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        kind: str = "int8",
        group: int | None = None,
        dtype: torch.dtype = torch.float32,
        offsets: bool | None = None,
        scale_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, kind, group, offsets=offsets, scale_dtype=scale_dtype)
        self.num_embeddings, self.embedding_dim, self.dtype = num_embeddings, embedding_dim, dtype

    @classmethod
    def from_matrix(cls, matrix: QuantisedMatrix, dtype: torch.dtype = torch.float32) -> Self:
        """An embedding of a quantised table."""
        rows, columns = matrix.shape
        return cls(rows, columns, kind=matrix.kind, group=matrix.group, dtype=dtype)._hold(matrix)

    @classmethod
    def tied_to(cls, head: QuantisedLinear, dtype: torch.dtype = torch.float32) -> Self:
        """An embedding that shares codes, scales and offsets with a layer: they are one table on the device, too."""
        made = cls(head.out_features, head.in_features, kind=head.kind, group=head.group, dtype=dtype)
        made.codes, made.scales, made.offsets = head.codes, head.scales, head.offsets
        return made

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        """[..., width] of index [...]."""
        return quantised_embedding(
            index, self.codes, self.scales, self.offsets, kind=self.kind, group=self.group, dtype=self.dtype
        )

    def extra_repr(self) -> str:
        """Sizes and format."""
        return f"{self.num_embeddings}, {self.embedding_dim}, {self._text()}"
