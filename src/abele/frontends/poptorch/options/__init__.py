"""Options of a model: how it is batched, trained, placed and run."""

from abele.frontends.poptorch.options.options import Options

__all__ = ["Options"]
