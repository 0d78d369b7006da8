"""Text from causal models of transformers: a loop of ours, and ``generate`` of theirs over a cache on the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from abele.frontends.poptorch.functions.sampling import SamplingSettings, SettingTensors
from abele.frontends.poptorch.hugging_face.cached import (
    CachedModel,
    GenerationError,
    SampledModel,
    StepPrograms,
    require_transformers,
)
from abele.frontends.poptorch.options import Options

if TYPE_CHECKING:
    from abele.frontends.poptorch.hugging_face.device_cache import DeviceCache

Tensor = torch.Tensor
_GRAIN = 16
"""Prompts and caches are padded to multiples of this, so that few programs serve many lengths."""

_KEPT: WeakKeyDictionary[Any, dict[Any, StepPrograms]] = WeakKeyDictionary()


def _up(length: int) -> int:
    return -(-length // _GRAIN) * _GRAIN


def _check_model(model: Any) -> int:
    """Longest context of a model that generates.

    Raises:
        GenerationError: It is no causal model of transformers.
    """
    require_transformers()
    from transformers import PreTrainedModel

    head = model.get_output_embeddings() if isinstance(model, PreTrainedModel) else None  # type: ignore[no-untyped-call]
    if head is None:
        raise GenerationError(
            f"{type(model).__name__} does not predict tokens",
            because="a causal language model of transformers is needed, such as LlamaForCausalLM",
        )
    if model.config.is_encoder_decoder:
        raise GenerationError(
            f"{type(model).__name__} has an encoder, whose texts this cache does not hold",
            remedy="abele.llm.models.t5 has T5 with caches of both kinds",
        )
    text = model.config.get_text_config(decoder=True)
    return int(getattr(text, "max_position_embeddings", None) or 2**31)


def _check_prompt(tokens: Tensor, mask: Tensor | None, new: int, most: int) -> Tensor:
    if not isinstance(tokens, torch.Tensor) or tokens.dim() != 2 or tokens.is_floating_point():
        shown = list(tokens.shape) if isinstance(tokens, torch.Tensor) else type(tokens).__name__
        raise GenerationError(f"input_ids are whole numbers [batch, length], got {shown}")
    if not tokens.numel():
        raise GenerationError(f"a prompt of nothing: input_ids {list(tokens.shape)}", remedy="a token to begin with")
    if isinstance(new, bool) or not isinstance(new, int) or new < 1:
        raise GenerationError(f"max_new_tokens is {new!r}", because="it is a whole number of at least 1")
    mask = torch.ones_like(tokens) if mask is None else mask.to(tokens.dtype)
    if mask.shape != tokens.shape:
        raise GenerationError(f"attention_mask {list(mask.shape)} does not fit input_ids {list(tokens.shape)}")
    if not bool(mask[:, -1].all()):
        raise GenerationError("prompts padded on the right", remedy="pad on the left: tokenizer.padding_side = 'left'")
    if tokens.shape[1] + new > most:
        raise GenerationError(
            f"a prompt of {tokens.shape[1]:,} tokens and {new:,} more are {tokens.shape[1] + new - most:,} too many",
            because=f"the model was made for {most:,} positions",
        )
    return mask


@torch.no_grad()
def generate(
    model: Any,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    max_new_tokens: int = 20,
    do_sample: bool = False,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    seed: int | Sequence[int] = 0,
    eos_token_id: int | Sequence[int] | None = None,
    pad_token_id: int | None = None,
    options: Options | None = None,
) -> Tensor:
    """Prompts and the tokens that follow them, [batch, length + new].

    The prompts run through one program, each further token through another over the same cache; tokens are chosen on
    the device. A sequence's text depends on its prompt and seed alone. Generation ends early where all sequences have
    ended; after its end a sequence is padded.

    Args:
        model: A causal language model of transformers.
        input_ids: Prompts [batch, length], shorter ones padded on the left.
        attention_mask: 0 where prompts are padded.
        max_new_tokens: Most tokens to make.
        do_sample: True to draw tokens; False to take the likeliest.
        temperature: Divisor of logits.
        top_k: Tokens to draw from; 0 for all.
        top_p: Probability that the tokens to draw from must reach.
        min_p: Probability, relative to the highest, below which tokens are not drawn.
        repetition_penalty: Factor that makes seen tokens less likely.
        seed: Seed of all sequences, sequence i beginning with ``seed + i``; or one seed for each.
        eos_token_id: Tokens that end a sequence; by default those of the model's configuration.
        pad_token_id: Token after an end; by default the configuration's, or the first that ends a sequence.
        options: Options of the compiled models.

    Raises:
        GenerationError: A model without a cache of its own, prompts that do not fit, or logits that are not finite.
        SamplingSettingError: A setting outside its range.
    """
    mask = _check_prompt(input_ids, attention_mask, max_new_tokens, _check_model(model))
    batch, given = input_ids.shape
    seeds = [seed + i for i in range(batch)] if isinstance(seed, int) else list(seed)
    if len(seeds) != batch:
        raise GenerationError(f"{len(seeds)} seeds for {batch} sequences")
    common = {"top_k": top_k, "top_p": top_p, "min_p": min_p, "repetition_penalty": repetition_penalty}
    settings = SettingTensors.of([SamplingSettings(temperature=temperature, seed=s, **common) for s in seeds])  # type: ignore[arg-type]
    draws = do_sample and temperature > 0
    ends = _ends(model, eos_token_id)
    pad = _pad(model, pad_token_id, ends)

    length = _up(given)
    tokens = torch.nn.functional.pad(input_ids, (length - given, 0), value=pad)
    most = _up(length + max_new_tokens)
    whole = torch.ones(batch, most, dtype=torch.int64)
    whole[:, :length] = torch.nn.functional.pad(mask, (length - given, 0))
    programs = _programs(
        model,
        (batch, most, draws, draws and (top_k > 0 or top_p < 1 or min_p > 0), repetition_penalty != 1.0),
        options,
    )
    programs.restart()

    places = (whole[:, :length].cumsum(1) - 1).clamp(min=0)
    made = [input_ids]
    alive = torch.ones(batch, dtype=torch.bool)
    first, new = 0, tokens.long()
    for _ in range(max_new_tokens):
        token, bad = programs(new, whole, places, torch.tensor(first), settings)
        if bool((bad & alive).any()):
            raise GenerationError(f"logits of sequence {int((bad & alive).nonzero()[0])} are not finite")
        token = torch.where(alive, token.long(), pad)
        made.append(token[:, None].to(input_ids.dtype))
        alive = alive & ~torch.isin(token, ends)
        if not bool(alive.any()):
            break
        first, new, places = first + new.shape[1], token[:, None], places[:, -1:] + 1
    return torch.cat(made, 1)


def _ends(model: Any, given: int | Sequence[int] | None) -> Tensor:
    of_model = getattr(model.generation_config, "eos_token_id", None) if given is None else given
    numbers = [] if of_model is None else [of_model] if isinstance(of_model, int) else list(of_model)
    return torch.tensor(numbers, dtype=torch.int64)


def _pad(model: Any, given: int | None, ends: Tensor) -> int:
    of_model = getattr(model.generation_config, "pad_token_id", None) if given is None else given
    return int(of_model) if of_model is not None else int(ends[0]) if len(ends) else 0


def _programs(model: Any, key: tuple[int, int, bool, bool, bool], options: Options | None) -> StepPrograms:
    """StepPrograms made before for this model and these sizes, or new ones."""
    kept = _KEPT.setdefault(model, {})
    whole = (*key, options)
    if whole not in kept:
        batch, most, draws, filtered, penalised = key
        made = SampledModel(model, batch, most, draws=draws, filtered=filtered, penalised=penalised)
        kept[whole] = StepPrograms(made.eval(), options)
    return kept[whole]


@contextmanager
def generating(model: Any, *, batch: int, length: int, options: Options | None = None) -> Iterator[DeviceCache]:
    """``model.generate`` of transformers on the device, where it is given the cache that this yields.

    >>> with poptorch.generating(model, batch=1, length=64) as cache:  # doctest: +SKIP
    ...     model.generate(input_ids, past_key_values=cache, max_new_tokens=20)

    Args:
        model: A causal language model of transformers.
        batch: Sequences; with beams, prompts times beams.
        length: Positions of the cache.
        options: Options of the compiled models.
    """
    _check_model(model)
    from abele.frontends.poptorch.hugging_face.device_cache import DeviceCache

    cache = DeviceCache(StepPrograms(CachedModel(model, batch, length).eval(), options), model.forward)
    own = model.__dict__.get("forward")
    model.forward = cache.forward
    try:
        yield cache
    finally:
        if own is None:
            del model.__dict__["forward"]
        else:
            model.forward = own
