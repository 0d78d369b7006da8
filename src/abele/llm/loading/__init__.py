"""Models out of files: configuration, modules, weights and tokenizer."""

from abele.llm.loading.description import ModelDescription, describe
from abele.llm.loading.load import LoadedModel, WeightNamesError, load

__all__ = ["LoadedModel", "ModelDescription", "WeightNamesError", "describe", "load"]
