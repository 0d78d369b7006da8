"""The next token of each sequence; PyTorch's front end has the functions, which Hugging Face's modules use as well."""

from abele.frontends.poptorch.functions.sampling import (
    Sampled,
    SamplingSettingError,
    SamplingSettings,
    SettingTensors,
    cut,
    gumbel,
    penalised,
    sample,
    threshold,
    top_log_probabilities,
)

__all__ = [
    "Sampled",
    "SamplingSettingError",
    "SamplingSettings",
    "SettingTensors",
    "cut",
    "gumbel",
    "penalised",
    "sample",
    "threshold",
    "top_log_probabilities",
]
