"""A causal model of transformers with its static cache as buffers, so that a step changes them on the device."""

from __future__ import annotations

import importlib.util
import inspect
from typing import Any

import torch
from torch import nn

from abele.errors import MissingPackageError
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.functions.sampling import SettingTensors, sample
from abele.frontends.poptorch.models.executor import PoplarExecutor
from abele.frontends.poptorch.models.wrappers import inferenceModel
from abele.frontends.poptorch.options import Options

Tensor = torch.Tensor


class GenerationError(Error, ValueError):
    """A model, prompt or setting from which no text can be generated."""


def require_transformers() -> None:
    """Refuse politely where transformers is not installed.

    Raises:
        MissingPackageError: It is not.
    """
    if importlib.util.find_spec("transformers") is None:
        raise MissingPackageError("models of Hugging Face need transformers", remedy="pip install transformers")


class CachedModel(nn.Module):
    """Logits of new tokens, whose keys and values the cache holds afterwards.

    Args:
        model: A causal model of transformers.
        batch: Sequences.
        length: Positions of the cache, padding included.
    """

    def __init__(self, model: Any, batch: int, length: int) -> None:
        super().__init__()
        require_transformers()
        from transformers.cache_utils import Cache, StaticLayer

        self.model, self.batch, self.length = model, batch, length
        self.keep = 1
        self.takes = frozenset(inspect.signature(model.forward).parameters)
        depth = model.config.get_text_config(decoder=True).num_hidden_layers
        # Layers with a window keep all positions too: their mask hides what lies outside.
        self.layers: list[Any] = [StaticLayer(max_cache_len=length) for _ in range(depth)]
        self.cache = Cache(layers=self.layers)
        with torch.no_grad():  # one token shows how many heads each layer has
            ones = torch.ones(batch, length, dtype=torch.int64)
            self._called(ones[:, :1] * 0, ones, ones[:, :1] * 0)
        for i, layer in enumerate(self.layers):
            self.register_buffer(f"keys{i}", torch.zeros_like(layer.keys), persistent=False)
            self.register_buffer(f"values{i}", torch.zeros_like(layer.values), persistent=False)

    def _called(self, tokens: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        name = "cache" if "cache" in self.takes else "past_key_values"
        more = {name: self.cache, "attention_mask": mask, "use_cache": True}
        more |= {"position_ids": positions} if "position_ids" in self.takes else {}
        more |= {"logits_to_keep": self.keep} if "logits_to_keep" in self.takes else {}
        logits: Tensor = self.model(input_ids=tokens, **more).logits
        return logits[:, -self.keep :]

    def forward(self, tokens: Tensor, mask: Tensor, positions: Tensor, first: Tensor) -> Tensor:
        """Logits [B, keep, V] of the last of the new tokens.

        Args:
            tokens: New tokens [B, T].
            mask: 0 where a place of the cache holds padding, [B, length].
            positions: Positions of the new tokens, padding not counted, [B, T].
            first: Place of the first new token in the cache, i64[].
        """
        kept = [(layer.keys, layer.values, layer.device) for layer in self.layers]
        try:
            for i, layer in enumerate(self.layers):
                layer.keys, layer.values = self.get_buffer(f"keys{i}"), self.get_buffer(f"values{i}")
                layer.device, layer.cumulative_length = layer.keys.device, first + 0
            return self._called(tokens, mask, positions)
        finally:
            for layer, (keys, values, device) in zip(self.layers, kept, strict=True):
                layer.keys, layer.values, layer.device = keys, values, device
                layer.cumulative_length = torch.zeros((), dtype=torch.int64)


class SampledModel(CachedModel):
    """The next token of each sequence: logits stay on the device.

    Args:
        model: A causal model of transformers.
        batch: Sequences.
        length: Positions of the cache, padding included.
        draws: False to take the highest logit.
        filtered: True where top-k, top-p or min-p is used.
        penalised: True where a repetition penalty is used.
    """

    seen: Tensor

    def __init__(self, model: Any, batch: int, length: int, *, draws: bool, filtered: bool, penalised: bool) -> None:
        super().__init__(model, batch, length)
        self.draws, self.filtered, self.penalised = draws, filtered, penalised
        vocabulary = model.get_output_embeddings().weight.shape[0] if penalised else 1
        self.register_buffer("seen", torch.zeros(batch, vocabulary, dtype=torch.bool), persistent=False)

    def forward(  # type: ignore[override]
        self, tokens: Tensor, mask: Tensor, positions: Tensor, first: Tensor, settings: SettingTensors
    ) -> tuple[Tensor, Tensor]:
        """The next token i32[B], and where logits were not finite, bool[B]."""
        logits = super().forward(tokens, mask, positions, first)[:, -1]
        seen = None
        if self.penalised:
            self.seen.copy_((self.seen & (first > 0)).scatter(1, tokens, True))
            seen = self.seen
        if not self.draws:
            settings = settings._replace(temperature=torch.zeros_like(settings.temperature))
        place = (first + tokens.shape[1]).to(torch.int32).expand(self.batch)
        drawn = sample(logits, settings, place, seen, filtered=self.filtered, draws=self.draws)
        return drawn.token, drawn.bad


class StepPrograms:
    """A cached model compiled once per number of new tokens; the programs hand the cache on.

    Args:
        model: The module that all of them run.
        options: Options of the wrapped models.
    """

    def __init__(self, model: CachedModel, options: Options | None) -> None:
        self.model, self.options = model, options
        self._made: dict[tuple[int, int], PoplarExecutor] = {}
        self._last: PoplarExecutor | None = None

    def __call__(self, tokens: Tensor, *args: Any, keep: int = 1) -> Any:
        """Results of the program for this number of new tokens [B, T]."""
        key = tokens.shape[1], keep
        if key not in self._made:
            options = None if self.options is None else self.options.clone()
            self._made[key] = inferenceModel(self.model, options)
        program = self._made[key]
        if self._last is not program:
            self.to_host()
            if program.isCompiled():
                program.copyWeightsToDevice()
        self.model.keep = keep
        self._last = program
        return program(tokens, *args)

    def to_host(self) -> None:
        """Bring the cache back to the module's buffers."""
        if self._last is not None:
            self._last.copyWeightsToHost()
        self._last = None

    def restart(self) -> None:
        """The module's present weights and an empty cache for the next call."""
        self._last = None
