"""A model's files before any weight is read: configuration, naming scheme, module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from abele.errors import FileFormatError
from abele.llm.config import GPT2Config, LlamaConfig, MixtralConfig, ModelConfig, ModelConfigError, NeoXConfig, T5Config
from abele.llm.loading import gguf_models, hugging_face
from abele.llm.loading.names import GGUF, HUGGING_FACE, Naming
from abele.llm.models.gpt2 import GPT2
from abele.llm.models.llama import Llama
from abele.llm.models.mixtral import Mixtral
from abele.llm.models.neox import NeoX
from abele.llm.models.t5 import T5
from abele.llm.tokenizer_files import json_of
from abele.weights import WeightFile, open_weights

_MODULES: dict[type[ModelConfig], Callable[..., nn.Module]] = {
    LlamaConfig: Llama,
    MixtralConfig: Mixtral,
    GPT2Config: GPT2,
    NeoXConfig: NeoX,
    T5Config: T5,
}


@dataclass(frozen=True)
class ModelSource:
    """A model in files.

    Attributes:
        weights: Its tensors.
        config: Its sizes and variants.
        family: Type of model, as the files call it.
        naming: Scheme of its tensors' names.
    """

    weights: WeightFile
    config: ModelConfig
    family: str
    naming: Naming

    def module(self) -> nn.Module:
        """A module of this configuration; its weights are not those of the files yet.

        Raises:
            ModelConfigError: The configuration asks for far more numbers than the files have.
        """
        _check_sizes(self.config, self.weights)
        return _MODULES[type(self.config)](self.config)


MOST_POSITIONS = 1 << 26
"""Longest context that a configuration may ask for."""


def _check_sizes(config: ModelConfig, weights: WeightFile) -> None:
    """Refusal of sizes that the files cannot have, before memory is asked for."""
    held = sum(tensor.num_elements for tensor in weights.values())
    experts = config.experts if isinstance(config, MixtralConfig) else 1
    needed = config.hidden * (
        config.vocabulary + config.layers * (experts * config.wide + config.heads * config.head_size)
    )
    if needed > held:
        raise ModelConfigError(
            f"{weights.path}: the configuration needs {needed:,} numbers or more, the files have {held:,}",
            because=f"{config.layers:,} layers of width {config.hidden:,}, {config.vocabulary:,} tokens",
        )
    if config.positions > MOST_POSITIONS:
        raise ModelConfigError(f"{weights.path}: a context of {config.positions:,} positions")


def source_of(path: str | Path) -> ModelSource:
    """The files of a model at a path, weights unread.

    Raises:
        FileFormatError: Files are missing or damaged.
        ModelConfigError: The model is of a kind that no module has.
    """
    weights = open_weights(path)
    if weights.format == "gguf":
        config = gguf_models.config_of(weights)
        family = str(weights.metadata["general.architecture"])
        return ModelSource(weights, config, family, GGUF[family])
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    if not (folder / "config.json").is_file():
        raise FileFormatError(f"{folder}: there is no config.json beside the weights")
    told = json_of(folder / "config.json")
    config = hugging_face.config_of(told)
    family = str(told["model_type"])
    scheme = family
    if isinstance(config, T5Config):
        config = replace(config, tied_head="lm_head.weight" not in weights)
        scheme = "t5 gated" if config.gated else family
    return ModelSource(weights, config, family, HUGGING_FACE[scheme])
