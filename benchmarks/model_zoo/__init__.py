"""Networks that people bring: public ones as their packages have them, and common ones written out here."""

from model_zoo.entry import ModelEntry
from model_zoo.graphs import GRAPHS
from model_zoo.language import LANGUAGE
from model_zoo.others import OTHERS
from model_zoo.vision import VISION

MODELS: tuple[ModelEntry, ...] = (*VISION, *LANGUAGE, *GRAPHS, *OTHERS)

__all__ = ["MODELS", "ModelEntry"]
