"""Generation in plain PyTorch: the oracle of the compiled backend, and a way to run without compiling."""

from __future__ import annotations

import torch

from abele import poptorch
from abele.llm.cache import PagedCache, PagedView
from abele.llm.generation.backend import DecodeCall, DecodedTokens, Floats, Ints, PrefillCall, Shape
from abele.llm.generation.events import StepCost
from abele.llm.generation.steps import DecodeStep, PrefillChunk, TokenChoice
from abele.llm.models.causal import CausalModel
from abele.llm.sampling import SettingTensors

Tensor = torch.Tensor


class SeparateCache(PagedCache):
    """A cache whose sequences attend one after the other.

    Sums of PyTorch over positions depend on how many there are, masked ones included, in their last bits. So a
    sequence in a batch with a longer one would not have the numbers that it has alone.
    """

    def view(self, table: Tensor, first: Tensor, length: int, count: Tensor | None = None) -> PagedView:
        """The cache as one forward pass sees it; see :meth:`PagedCache.view`."""
        return SeparateView(self, table, first, length, count)


class SeparateView(PagedView):
    """The pages of a batch's sequences, each on its own."""

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float | None = None,
        window: int | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        """Attention of queries [B, T, H, d] to the cache, after the new keys and values are written to it."""
        keys, values = self._written(layer, k, v)
        made = q.new_zeros((*q.shape[:3], v.shape[3]))
        for i in torch.nonzero(self.table[:, 0])[:, 0].tolist():
            made[i] = poptorch.cached_attention(
                q[i : i + 1].to(keys.dtype),
                keys,
                values,
                self.table[i : i + 1],
                self.first[i : i + 1],
                page=self.cache.page,
                scale=scale,
                window=window,
                softcap=softcap,
            )[0]
        return made


class EagerBackend:
    """A model and its cache in PyTorch.

    Args:
        model: The model; its parameters' type is that of the cache.
        shape: Sizes of calls.
    """

    def __init__(self, model: CausalModel, shape: Shape) -> None:
        self.model, self._shape = model.eval(), shape
        dtype = next(model.parameters()).dtype
        self.cache = SeparateCache.of(model.config, pages=shape.pages, page=shape.page, dtype=dtype)
        self._step = DecodeStep(model, self.cache, shape, TokenChoice())
        self._prefill = PrefillChunk(model, self.cache)

    @property
    def shape(self) -> Shape:
        """Sizes of its calls."""
        return self._shape

    @property
    def vocabulary(self) -> int:
        """Tokens that the model knows."""
        return self.model.config.vocabulary

    @torch.inference_mode()
    def prefill(self, call: PrefillCall) -> StepCost:
        """Writes the keys and values of a chunk to the cache."""
        first, count = (torch.tensor([x], dtype=torch.int32) for x in (call.first, call.count))
        self._prefill(torch.from_numpy(call.tokens)[None], first, count, torch.from_numpy(call.table)[None])
        return StepCost()

    @torch.inference_mode()
    def decode(self, call: DecodeCall) -> DecodedTokens:
        """Draws tokens for every slot, and writes the keys and values of what it is given."""
        step, table, end_ids = self._step, torch.from_numpy(call.table), torch.from_numpy(call.end_ids)
        step.choice = TokenChoice.of(call)
        tokens, first, steps = (torch.from_numpy(x) for x in (call.tokens, call.first, call.steps))
        step.begin(tokens, first, steps)
        if call.history is not None:
            step.recall(torch.from_numpy(call.history))
        settings = settings_of(call)
        while step.alive:
            step(table, end_ids, settings)
        reports = (
            {name: getattr(step, name).numpy().copy() for name in ("logprobs", "top_ids", "top_logprobs")}
            if self.shape.top
            else {}
        )
        return DecodedTokens(tokens=step.made.numpy().copy(), counts=step.count.numpy().copy(), **reports)

    @torch.inference_mode()
    def score(self, call: PrefillCall) -> tuple[Floats, StepCost]:
        """Logits f32[count, vocabulary] of what follows each token of a chunk, which is written to the cache."""
        table, first = torch.from_numpy(call.table)[None], torch.tensor([call.first], dtype=torch.int32)
        hidden = self.model(
            torch.from_numpy(call.tokens[: call.count])[None], self.cache.view(table, first, call.count)
        )
        return self.model.head(hidden[0]).float().numpy(), StepCost()

    @torch.inference_mode()
    def copy_pages(self, sources: Ints, targets: Ints) -> StepCost:
        """Copies pages of the cache, all read before any is written."""
        within = torch.arange(self.shape.page)
        read, write = (
            (torch.from_numpy(pages).long()[:, None] * self.shape.page + within).flatten()
            for pages in (sources, targets)
        )
        for layer in range(self.cache.layers):
            for table in self.cache.tables(layer):
                table[write] = table[read]
        return StepCost()


def settings_of(call: DecodeCall) -> SettingTensors:
    """Settings of sampling in a call, as tensors."""
    arrays = (call.temperature, call.top_k, call.top_p, call.min_p, call.penalty, call.seeds)
    return SettingTensors(*(torch.from_numpy(array) for array in arrays))
