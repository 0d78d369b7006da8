"""``popart.Patterns``: rewrites of the original compiler, by name. They choose programs of the same results."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

from abele.errors import nearest
from abele.frontends.popart.errors import popart_exception


class PatternsLevel(IntEnum):
    """Levels of patterns."""

    NoPatterns = 0
    Minimal = 1
    Default = 2
    All = 3


_GRADIENTS = (
    "SubtractArg1 MulArg DivArg0 DivArg1 PowArg0 PowArg1 Atan2Arg0 Atan2Arg1 FmodArg0 AddArg0 AddArg1 Reciprocal Sqrt "
    "Exp Expm1 Log Log1p Sin Cos Abs MatMulLhs MatMulRhs"
)
_DECOMPOSED = (
    "MatMul LSTM Cosh Split TanToSinOverCos ConvDataGrad ConvFlipWeights ConvFlipWeightsDoubleFlip Gemm "
    "ConvTranspose Acos Acosh Asin Asinh Atan Atanh Sinh Tan DepthToSpace SpaceToDepth"
)
_PLAIN = (
    "PreUniRepl PostNRepl InPlace OpToIdentity SoftmaxGradDirect SoftMaxGradDirect NlllWithSoftmaxGradDirect "
    "NlllWithSoftMaxGradDirect SplitGather SplitGatherPattern UpdateInplacePrioritiesForIpu InitAccumulate "
    "InitAccumulatePattern Fuser PadSum SumToAdd SumToAddPattern NegativeOneScale NegativeOneScalePattern "
    "DecomposeBinaryConstScalar RandomNormalLikeOpPattern RandomUniformLikeOpPattern ZerosLikeOpPattern "
    "ConvDataGrad ConvFlipWeights ConvFlipWeightsDoubleFlip GemmDecomposition ConvTranspose ConvTransposePattern "
    "LikeOps TransposeToIdentityOrReshapePattern SplitGradOpToConcat LoopScanOutPattern ScanToLoop ExpandCast "
    "PackedDataBlockPattern TiedGather TiedGatherPattern TiedGatherAccumulate TiedGatherAccumulatePattern "
    "SparseAccumulate SparseAccumulatePattern ViewSimplifyPattern RemoveUnnecessaryLossGradCast "
    "RemoveAllReducePattern AllReduceToIdentityPattern ContiguateIPUCopyIndicesPattern "
    "ContiguateIpuCopyIndicesPattern UpsampleToResize AdamDecompose AdaptiveDecompose SGD0Decompose SGD1Decompose "
    "SGD2Decompose LambSerialisedWeight LambSerialisedWeightPattern Conv3x3Stride2Pattern"
)
_PATTERNS = tuple(
    dict.fromkeys(
        [
            *_PLAIN.split(),
            *(f"{name}GradOp" for name in _GRADIENTS.split()),
            *(f"{name}{end}" for name in _DECOMPOSED.split() for end in ("Op", "OpPattern", "GradOp")),
        ]
    )
)


class Patterns:
    """Rewrites of the original compiler by name; they choose programs of the same results, and nothing here."""

    def __init__(self, level: PatternsLevel | Iterable[str] = PatternsLevel.Default) -> None:
        names = [] if isinstance(level, PatternsLevel) else [self._known(name) for name in level]
        all_on = isinstance(level, PatternsLevel) and level != PatternsLevel.NoPatterns
        self._on = {name: all_on or name in names for name in _PATTERNS}

    def _known(self, name: str) -> str:
        if name not in _PATTERNS:
            close = nearest(name, _PATTERNS)
            raise popart_exception(
                f"Invalid pattern name '{name}' provided to Patterns constructor",
                remedy=f"did you mean {close!r}?" if close else None,
            )
        return name

    def enablePattern(self, name: str, on: bool) -> Patterns:
        """Turn a pattern on or off."""
        self._on[self._known(name)] = bool(on)
        return self

    def isPatternEnabled(self, name: str) -> bool:
        """True if a pattern is on."""
        return self._on[self._known(name)]

    def enableRuntimeAsserts(self, on: bool) -> Patterns:
        """Turn checks of patterns on or off."""
        return self

    def __getattr__(self, name: str) -> bool:
        if name in _PATTERNS:
            return self._on[name]
        raise AttributeError(f"there is no pattern {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _PATTERNS:
            self._on[name] = bool(value)
        else:
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return "\n".join(name for name, on in self._on.items() if on)
