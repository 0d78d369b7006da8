"""Fully connected layers with sparse weights.

``SparseLinear(784, 256, density=0.1)`` holds 20,071 of 200,704 weights. Its pattern is part of the compiled program;
with ``dynamic=True`` it is data instead, which can change between steps without compiling again. On the host the layer
computes the same numbers with PyTorch's operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch

from abele.counts import check_counts
from abele.errors import InvalidOptionError, PatternMismatchError, TensorError, TypeMismatchError
from abele.frontends.poptorch.capture.sparse_products import dense_weight, dynamic_sparse_linear, sparse_linear
from abele.frontends.poptorch.program.recording import isRunningOnIpu
from abele.frontends.poptorch.sparse.layer_patterns import (
    BLOCKS,
    drawn_pattern,
    held_values,
    kind_of,
    pattern_state,
    plan_state,
    planned_slots,
    read_pattern,
    read_plan,
)
from abele.frontends.poptorch.sparse.patterns import magnitude_pattern, moved_values
from abele.frontends.poptorch.values.tensors import to_array
from abele.sparsity import Pattern


class SparseLinear(torch.nn.Module):
    """``x · Sᵀ + bias`` with a sparse weight S [out, in].

    Args:
        in_features: Features that the layer reads.
        out_features: Features that it makes.
        bias: True to add a bias.
        density: Share of the blocks that are held, drawn at random by PyTorch's generator.
        pattern: The blocks that are held, in place of a density.
        block: Edge of the square blocks: 1, 4, 8 or 16.
        dynamic: True to let the pattern change between steps.
        rows: Rows of activations that the device multiplies at a time; wanted where the pattern is dynamic.
        dtype: Type of the weights, and of what a dynamic pattern is planned for.
        system: Machine that a dynamic pattern is planned for; bow-2000 unless ``ABELE_SYSTEM`` says another.

    Attributes:
        values: Values of S: of the pattern's blocks in order, or of the plan's slots where the pattern is dynamic.
        words: Words that tell the device a dynamic pattern.

    Raises:
        InvalidOptionError: A density outside of 0 to 1, neither or both of density and pattern, another block, or no
            rows for a dynamic pattern.
        SparsePatternError: Features that are no multiple of the block.
        PatternMismatchError: A pattern for another layer.
    """

    values: torch.nn.Parameter
    bias: torch.nn.Parameter | None
    words: torch.Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        density: float | None = None,
        pattern: Pattern | None = None,
        block: int = 1,
        dynamic: bool = False,
        rows: int | None = None,
        dtype: torch.dtype = torch.float32,
        system: str | None = None,
    ) -> None:
        super().__init__()
        check_counts(in_features=in_features, out_features=out_features)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise TypeMismatchError(f"the dtype of a sparse layer is one of PyTorch's floating point, got {dtype!r}")
        if pattern is not None and not isinstance(pattern, Pattern):
            raise TypeMismatchError(f"a pattern is an abele.sparsity.Pattern, got {pattern!r}")
        if pattern is None:
            pattern = drawn_pattern((out_features, in_features), density, block)
        elif density is not None:
            raise InvalidOptionError("a layer takes a density or a pattern, not both")
        if pattern.shape != (out_features, in_features):
            raise PatternMismatchError(
                f"{pattern} is not of {out_features:,} outputs x {in_features:,} inputs",
                remedy="a pattern has the shape of the weight, outputs first",
            )
        if pattern.block not in {(edge, edge) for edge in BLOCKS}:
            raise InvalidOptionError(
                f"blocks of {pattern.block[0]} x {pattern.block[1]} have no vertices", remedy="1, 4, 8 or 16 squared"
            )
        self.in_features, self.out_features = in_features, out_features
        self.plan = planned_slots(pattern, rows, dtype, system) if dynamic else None
        self._pattern, self._is_recorded = pattern, False
        shape = (pattern.num_blocks, *pattern.block) if self.plan is None else self.plan.values_shape
        self.values = torch.nn.Parameter(torch.zeros(shape, dtype=dtype))
        if self.plan is not None:
            self.register_buffer("words", torch.from_numpy(self.plan.words(pattern)))
        self.register_parameter("bias", torch.nn.Parameter(torch.zeros(out_features, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw values and bias uniformly, as ``torch.nn.Linear`` does for as many inputs as an output reads here."""
        bound = 1 / math.sqrt(max(self._pattern.density * self.in_features, 1))
        with torch.no_grad():
            drawn = torch.empty((self._pattern.num_blocks, *self._pattern.block)).uniform_(-bound, bound)
            self.values.copy_(self._held(drawn.to(self.values.dtype)))
            if self.bias is not None:
                self.bias.uniform_(-1 / math.sqrt(self.in_features), 1 / math.sqrt(self.in_features))

    @property
    def pattern(self) -> Pattern:
        """Blocks that are held."""
        return self._pattern

    @property
    def density(self) -> float:
        """Share of the weight that is held."""
        return self._pattern.density

    @property
    def dynamic(self) -> bool:
        """True if the pattern can change without compiling again."""
        return self.plan is not None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] to [..., out]."""
        if self.plan is not None and isRunningOnIpu():
            return dynamic_sparse_linear(x, self.words, self.values, self.plan, self.bias)
        self._is_recorded |= isRunningOnIpu()
        return sparse_linear(x, self.pattern_values(), self._pattern, self.bias)

    def pattern_values(self) -> torch.Tensor:
        """Values in the pattern's order [blocks, *block]; differentiable."""
        if self.plan is None:
            return self.values
        return self.values.reshape(-1)[torch.from_numpy(self.plan.slots(self._pattern))]

    def _held(self, values: torch.Tensor, pattern: Pattern | None = None) -> torch.Tensor:
        """Values in the pattern's order, or another's, as the parameter holds them."""
        if self.plan is None:
            return values
        return torch.from_numpy(self.plan.encode(pattern or self._pattern, to_array(values)))

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Self:
        """Convert the layer, as ``half()`` does; a dynamic layer is planned anew for values of another kind."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.plan is not None and self.plan.dtype != kind_of(self.values.dtype):
            held, grad = self.pattern_values().detach(), self.values.grad
            by_pattern = None if grad is None else self.plan.decode(self._pattern, to_array(grad))
            self.plan = replace(self.plan, dtype=kind_of(self.values.dtype))
            self.values.grad = None
            self.values.data = self._held(held)
            if by_pattern is not None:
                self.values.grad = self._held(torch.from_numpy(by_pattern)).to(self.values.dtype)
            self.words = torch.from_numpy(self.plan.words(self._pattern))
        return self

    # --- patterns that change ----------------------------------------------------------------------------------------

    def set_pattern(self, pattern: Pattern, values: torch.Tensor | None = None) -> None:
        """Hold other blocks from now on.

        A wrapped model takes values and pattern over with ``copyWeightsToDevice()``; the classes that train sparse
        models do so, and move what an optimiser keeps beside values.

        Args:
            pattern: Of the layer's shape and block.
            values: Its values; by default blocks that were held keep theirs, and others begin at zero.

        Raises:
            PatternMismatchError: A pattern of another shape or block; or a static one that was compiled.
            SparseOverflowError: More blocks than a dynamic layer has slots for.
            TensorError: Values of another shape than [blocks, *block].
        """
        self._check_change(pattern)
        given = values
        if given is not None and tuple(given.shape) != (pattern.num_blocks, *pattern.block):
            raise TensorError(
                f"values of {pattern} are {[pattern.num_blocks, *pattern.block]}, got {list(given.shape)}",
                remedy="pattern_values() has them in this order; pattern.values_of(dense) takes them from a matrix",
            )
        if given is None:
            old = to_array(self.pattern_values().detach())
            given = torch.from_numpy(moved_values(self._pattern, pattern, old))
        with torch.no_grad():
            self._pattern = pattern
            held = self._held(given.detach().to(self.values.dtype))
            if held.shape == self.values.shape:
                self.values.copy_(held)
            else:
                self.values = torch.nn.Parameter(held, self.values.requires_grad)
            if self.plan is not None:
                self.words.copy_(torch.from_numpy(self.plan.words(pattern)))

    def _check_change(self, pattern: Pattern) -> None:
        if (pattern.shape, pattern.block) != (self._pattern.shape, self._pattern.block):
            raise PatternMismatchError(f"{pattern} is no pattern for a layer with {self._pattern}")
        if self.plan is not None:
            self.plan.check(pattern)
        elif self._is_recorded and pattern != self._pattern:
            raise PatternMismatchError(
                f"the layer was compiled with another pattern, {self._pattern}",
                because=f"a static pattern is part of the program; {self._pattern.difference_text(pattern)}",
                remedy="SparseLinear(…, dynamic=True), or destroy() the wrapped model and thaw() the layer",
            )

    def thaw(self) -> None:
        """Let a static pattern change again, once no compiled program has it."""
        self._is_recorded = False

    # --- dense layers and files --------------------------------------------------------------------------------------

    @classmethod
    def from_dense(
        cls,
        linear: torch.nn.Linear,
        density: float | None = None,
        block: int = 1,
        *,
        pattern: Pattern | None = None,
        dynamic: bool = False,
        rows: int | None = None,
    ) -> Self:
        """A layer with the blocks of largest magnitude of a dense one, or those of a pattern.

        Args:
            linear: The dense layer; it stays as it is.
            density: Share of the blocks.
            block: Edge of the blocks.
            pattern: The blocks, in place of a density.
            dynamic: True to let the pattern change between steps.
            rows: Rows of activations at a time.

        Raises:
            InvalidOptionError, SparsePatternError, PatternMismatchError: As for a new layer.
            TensorError: Weights that are not finite, with a density.
        """
        if not isinstance(linear, torch.nn.Linear):
            raise TypeMismatchError(f"a dense layer is a torch.nn.Linear, got {linear!r}")
        weight = to_array(linear.weight)
        if pattern is None:
            bad = int(weight.size - np.isfinite(weight).sum())
            if bad:
                raise TensorError(
                    f"blocks are chosen by magnitude, and {bad:,} of {weight.size:,} weights are not finite"
                )
            count = drawn_pattern((linear.out_features, linear.in_features), density, block).num_blocks
            pattern = magnitude_pattern(weight, count, (block, block))
        made = cls(
            linear.in_features,
            linear.out_features,
            linear.bias is not None,
            pattern=pattern,
            dynamic=dynamic,
            rows=rows,
            dtype=linear.weight.dtype,
        )
        made.set_pattern(pattern, torch.from_numpy(pattern.values_of(weight)))
        if linear.bias is not None and made.bias is not None:
            with torch.no_grad():
                made.bias.copy_(linear.bias)
        return made

    @property
    def weight(self) -> torch.Tensor:
        """The dense weight [out, in], made anew at each access; differentiable.

        Modules that look into their layers read it, such as ``torch.nn.TransformerEncoderLayer``.
        """
        return dense_weight(self.pattern_values(), self._pattern)

    def to_dense(self) -> torch.nn.Linear:
        """A dense layer of the same numbers."""
        dtype = self.values.dtype
        made = torch.nn.Linear(self.in_features, self.out_features, self.bias is not None, dtype=dtype)
        with torch.no_grad():
            made.weight.copy_(dense_weight(self.pattern_values(), self._pattern))
            if self.bias is not None:
                made.bias.copy_(self.bias)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """State of plain data, as files of wrapped models take it."""
        state: dict[str, Any] = dict(super().__getstate__())  # type: ignore[no-untyped-call]
        return {**state, "_pattern": pattern_state(self._pattern), "plan": plan_state(self.plan)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Pattern and plan again from plain data."""
        whole = {**state, "plan": read_plan(state["plan"]), "_pattern": read_pattern(state["_pattern"])}
        super().__setstate__(whole)  # type: ignore[no-untyped-call]

    def get_extra_state(self) -> dict[str, Any]:
        """The pattern and the plan, as plain data."""
        return {**pattern_state(self._pattern), "plan": plan_state(self.plan)}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Take over a pattern from a file; values and words come beside it.

        Raises:
            SparsePatternError: It is none.
            PatternMismatchError: It is of another layer, or the layer was compiled with another one.
        """
        pattern = read_pattern(state)
        self._check_change(pattern)
        self._pattern = pattern
        if self.plan is not None:
            self.words.copy_(torch.from_numpy(self.plan.words(pattern)))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        # The pattern is checked before anything is changed. A static layer takes the number of blocks of the file.
        extra, given = state_dict.get(f"{prefix}_extra_state"), state_dict.get(f"{prefix}values")
        if extra is not None and given is not None:
            pattern, theirs = read_pattern(extra), read_plan(extra.get("plan"))
            self._check_change(pattern)
            values = held_values(given, pattern, theirs)
            own = given if theirs == self.plan else self._held(values, pattern)
            state_dict = {**state_dict, f"{prefix}values": own}
            state_dict.pop(f"{prefix}words", None)
            if self.plan is not None:
                state_dict[f"{prefix}words"] = torch.from_numpy(self.plan.words(pattern))
            elif own.shape != self.values.shape:
                self.values = torch.nn.Parameter(torch.zeros_like(own, dtype=self.values.dtype))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def extra_repr(self) -> str:
        """Text of the layer in a printed model."""
        edge, held = self._pattern.block[0], self._pattern.num_values
        blocks = "" if edge == 1 else f", blocks of {edge} x {edge}"
        kind = ", dynamic" if self.dynamic else ""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"{held:,} weights held (density {self.density:.3g}){blocks}{kind}"
        )


class BlockSparseLinear(SparseLinear):
    """A :class:`SparseLinear` of square blocks of 16, which the machine's matrix units take whole.

    Args:
        in_features: Features that the layer reads.
        out_features: Features that it makes.
        bias: True to add a bias.
        density: Share of the blocks that are held.
        pattern: The blocks that are held, in place of a density.
        block: Edge of the blocks: 4, 8 or 16.
        dynamic: True to let the pattern change between steps.
        rows: Rows of activations at a time; wanted where the pattern is dynamic.

    Raises:
        InvalidOptionError, SparsePatternError, PatternMismatchError: As for :class:`SparseLinear`; blocks of 1.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, block: int = 16, **more: Any) -> None:
        pattern = more.get("pattern")
        if (pattern.block[0] if isinstance(pattern, Pattern) else block) == 1:
            raise InvalidOptionError("blocks of a block-sparse layer are of 4, 8 or 16", remedy="SparseLinear has 1")
        super().__init__(in_features, out_features, bias, block=block, **more)
