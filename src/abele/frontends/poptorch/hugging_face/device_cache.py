"""A cache for transformers' ``generate``, with keys and values that stay on the device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from transformers.cache_utils import Cache, StaticLayer
from transformers.modeling_outputs import CausalLMOutputWithPast

from abele.frontends.poptorch.hugging_face.cached import GenerationError, StepPrograms

Tensor = torch.Tensor


class DeviceCache(Cache):
    """Keys and values of positions seen, on the device.

    Args:
        programs: The model's programs.
        forward: The model's own forward function, for calls without this cache.
    """

    def __init__(self, programs: StepPrograms, forward: Callable[..., Any]) -> None:
        super().__init__(layers=[StaticLayer(max_cache_len=programs.model.length)])
        self.programs, self.seen = programs, 0
        self._of_host = forward

        @functools.wraps(forward)
        def on_device(*args: Any, **kwargs: Any) -> Any:
            return self._forward(*args, **kwargs)

        self.forward = on_device

    @property
    def is_compileable(self) -> bool:
        """False: masks are made on the device."""
        return False

    @property
    def is_croppable(self) -> bool:
        """True: places after the end are written anew."""
        return True

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Places taken."""
        return self.seen

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        """Places that new tokens see, and the first of them."""
        return self.seen + query_length, 0

    def reset(self) -> None:
        """Forget all positions."""
        self.seen = 0

    def crop(self, max_length: int) -> None:
        """Keep this many places, or take off as many as a negative number says."""
        self.seen = max(0, self.seen + max_length if max_length < 0 else min(self.seen, max_length))

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Sequences in another order, as beams need; done on the host."""
        self.programs.to_host()
        for buffer in self.programs.model.buffers():
            if buffer.dim() == 4 and buffer.shape[0] == len(beam_idx):
                buffer.copy_(buffer.index_select(0, beam_idx))

    def update(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: nobody writes to this cache but the device.

        Raises:
            GenerationError: Always.
        """
        raise GenerationError("a cache on the device is written by poptorch.generating's model alone")

    def _forward(self, input_ids: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("cache", kwargs.get("past_key_values")) is not self:
            return self._of_host(input_ids, *args, **kwargs)
        model = self.programs.model
        if input_ids is None or input_ids.shape[0] != model.batch:
            shown = "embeddings" if input_ids is None else f"{input_ids.shape[0]} sequences"
            raise GenerationError(f"a cache of {model.batch} sequences got {shown}")
        length = input_ids.shape[1]
        if self.seen + length > model.length:
            raise GenerationError(
                f"{self.seen + length:,} positions in a cache of {model.length:,}",
                remedy=f"poptorch.generating(…, length={self.seen + length})",
            )
        mask, places = kwargs.get("attention_mask"), kwargs.get("position_ids")
        whole = torch.ones(model.batch, model.length, dtype=torch.int64)
        if mask is not None:
            whole[:, : mask.shape[1]] = mask
        if places is None:
            places = (whole.cumsum(1) - 1).clamp(min=0)[:, self.seen : self.seen + length]
        keep = kwargs.get("logits_to_keep", 0) or length
        places = places.expand(model.batch, -1)
        logits = self.programs(input_ids, whole, places, torch.tensor(self.seen), keep=int(keep))
        self.seen += length
        return CausalLMOutputWithPast(logits=logits, **{self._name: self})

    @property
    def _name(self) -> str:
        fields = CausalLMOutputWithPast.__dataclass_fields__
        return "cache" if "cache" in fields else "past_key_values"
