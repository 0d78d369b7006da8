"""The options that operator benchmarks take, by kind of operator.

Names are those of PopLibs' own benchmark tools; other spellings of one option lead to the same name. What a row gives
beyond these is left out of what is built, and said.
"""

from __future__ import annotations

from abele.validation.parameters import Parameters

_MACHINE = ("tiles-per-ipu",)
_RUN = (
    "compile-only",
    "cpu",
    "device-type",
    "help",
    "ignore-data",
    "ipus",
    "profile",
    "profile-dir",
    "profile-json",
    "random-seed",
    "report-memory-usage",
    "report-plan",
    "report-total-virtual-tile-memory",
    "report-var-storage",
    "runs",
    "seed",
    "show-execution-steps",
    "show-var-storage",
    "tolerance",
    "verbose",
)
"""Options for how a benchmark is run, checked and reported, and not for what is run."""

_PLANNED = ("data-type", "partials-type", "available-memory-proportion", "single-phase", "inference-only", "bias")
_WINDOW = (
    "batch-size",
    "input-channels",
    "output-channels",
    "field",
    "kernel-size",
    "kernel-dilation",
    "stride",
    "padding",
    "padding-lower",
    "padding-upper",
)
_CONV = (
    *_PLANNED,
    *_WINDOW,
    "truncation",
    "truncation-lower",
    "truncation-upper",
    "in-dilation",
    "kernel-padding",
    "kernel-padding-lower",
    "kernel-padding-upper",
    "kernel-truncation",
    "kernel-truncation-lower",
    "kernel-truncation-upper",
    "output-truncation",
    "output-truncation-lower",
    "output-truncation-upper",
    "flip-kernel",
    "conv-groups",
    "convolution-options",
    "fwd-plan-constraints",
    "bwd-plan-constraints",
    "wu-plan-constraints",
)
_RECURRENT = (
    "data-type",
    "partials-type",
    "accumulators-type",
    "available-memory-proportion",
    "batch-size",
    "sequence-size",
    "input-size",
    "output-size",
    "phase",
    "cell-order",
    "activation",
    "recurrent-activation",
    "output-full-sequence",
    "calc-input-gradients",
    "pre-weights",
    "recomputation-mode",
    "code-reuse",
    "steps-per-wu",
)
_KNOWN: dict[str, tuple[str, ...]] = {
    "cholesky": ("cholesky", "a-rank", "batches", "block-size", "lower", "data-type"),
    "matrix_solver": ("a-rank", "b-rank", "batches", "block-size", "lower", "left-side", "unit-diagonal", "data-type"),
    "conv": _CONV,
    "oct_conv": (*_WINDOW, "data-type", "partials-type", "inference-only", "alpha", "alpha-in", "alpha-out"),
    "fc": (
        *_PLANNED,
        "input-size",
        "output-size",
        "batch-size",
        "num-groups",
        "matmul-options",
        "fwd-plan-constraints",
        "bwd-plan-constraints",
        "wu-plan-constraints",
    ),
    "gemm": (
        "m",
        "k",
        "n",
        "g",
        "alpha",
        "beta",
        "left-matrix-op",
        "right-matrix-op",
        "data-type",
        "partials-type",
        "available-memory-proportion",
        "matmul-options",
        "plan-constraints",
    ),
    "pooling": (
        "channels",
        "field",
        "kernel",
        "stride",
        "padding",
        "padding-lower",
        "padding-upper",
        "batch-size",
        "pooling-type",
        "data-type",
        "fwd-chans-per-group",
        "bwd-chans-per-group",
        "inference-only",
        "scaled-gradient",
    ),
    "reduction": ("shape", "dims", "type", "out-type", "scale", "update", "operation"),
    "embedding": (
        "shape",
        "num-indices",
        "data-type",
        "pass",
        "available-memory-proportion",
        "plan-constraints",
    ),
    "gru": (*_RECURRENT, "reset-after"),
    "lstm": _RECURRENT,
    "ctc_loss": (
        "max-time",
        "batch",
        "num-classes",
        "max-label-length",
        "in-type",
        "out-type",
        "logit-inputs",
        "blank-class",
        "disable-always-satisfiable-error",
    ),
}
_SPELLINGS: dict[str, dict[str, str]] = {
    "conv": {"groups": "conv-groups", "kernel": "kernel-size", "field-size": "field", "phase": "single-phase"},
    "fc": {"groups": "num-groups", "phase": "single-phase"},
    "gemm": {"groups": "g", "batches": "g"},
    "pooling": {"kernel-size": "kernel", "field-size": "field", "type": "pooling-type"},
    "reduction": {"data-type": "type", "in-type": "type", "output-type": "out-type"},
    "embedding": {"phase": "pass"},
    "gru": {"hidden-size": "output-size", "apply-reset-after": "reset-after", "single-phase": "phase"},
    "lstm": {"hidden-size": "output-size", "pre-calc-weights": "pre-weights", "single-phase": "phase"},
    "ctc_loss": {"batch-size": "batch", "time": "max-time"},
}
_SPELLINGS["oct_conv"] = {"kernel": "kernel-size", "field-size": "field"}


def known_options(tool: str) -> dict[str, str]:
    """The name of every option that rows of ``tool`` may give, by its spellings."""
    names = (*_KNOWN.get(tool, ()), *_MACHINE, *_RUN)
    return {name: name for name in names} | _SPELLINGS.get(tool, {})


def understood(tool: str, given: Parameters) -> tuple[Parameters, tuple[str, ...]]:
    """The options of a row under their names, and the names of those that this kind of operator does not know."""
    return given.renamed(known_options(tool))
