"""Capturing PyTorch models as networks."""

from abele.frontends.poptorch.capture.capture import CapturedModel, capture

__all__ = ["CapturedModel", "capture"]
