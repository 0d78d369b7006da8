"""Well-known networks in plain PyTorch, as ``abele fit`` takes them by name."""

from abele.garden.models.known import KNOWN, KnownModel, known_model

__all__ = ["KNOWN", "KnownModel", "known_model"]
