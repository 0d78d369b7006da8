"""PopART's optimisers: values by name, each constant or not, and values of single weights.

They become update rules of the network: a group for each set of values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, ClassVar

from abele.frontends.onnx.types import element_type
from abele.frontends.popart.errors import popart_exception
from abele.frontends.popart.tensor_info import code_of
from abele.network import Adadelta, Adagrad, Adamax, Group, Lamb, RmsProp, Sgd, Value
from abele.network import Adam as AdamRule
from abele.network import Optimiser as Rule
from abele.numerics import ElementType, f32


class AdamMode(IntEnum):
    """Kinds of :class:`Adam`."""

    Adam = 0
    AdamNoBias = 1
    AdaMax = 2
    Lamb = 3
    LambNoBias = 4


class WeightDecayMode(IntEnum):
    """Ways of decay: it shrinks weights, or is part of gradients."""

    Decay = 0
    L2Regularization = 1


class AdaptiveMode(IntEnum):
    """Kinds of :class:`Adaptive`."""

    AdaGrad = 0
    RMSProp = 1
    CenteredRMSProp = 2
    AdaDelta = 3


class SGDAccumulatorAndMomentum(IntEnum):
    """Choice of one tensor for the sum of gradients and the momentum, or of two."""

    Combined = 0
    Separate = 1


@dataclass(frozen=True)
class OptimizerValue:
    """A number of an optimiser; a constant one is compiled in."""

    value: float
    is_const: bool = True

    def __init__(self, value: Any, isConst: bool | None = None) -> None:
        number, const = value if isinstance(value, (tuple, list)) else (value, isConst)
        object.__setattr__(self, "value", float(number))
        object.__setattr__(self, "is_const", True if const is None else bool(const))

    def val(self) -> float:
        """The number."""
        return self.value

    def isConst(self) -> bool:
        """True if it is compiled in."""
        return self.is_const


class OptimizerValueMap:
    """A number for all weights, and those of single ones."""

    def __init__(self, default: OptimizerValue, specific: Mapping[str, OptimizerValue]) -> None:
        self._default, self._specific = default, dict(specific)

    def getDefault(self) -> OptimizerValue:
        """The number for all."""
        return self._default

    def get(self, id: str) -> OptimizerValue:
        """The number of a weight."""
        return self._specific.get(id, self._default)


@dataclass(frozen=True)
class ClipNormSettings:
    """A norm that gradients of some weights together are shrunk to.

    Attributes:
        weights: Names of the weights; None for all.
        max_norm: The norm.
    """

    weights: tuple[str, ...] | None
    max_norm: float

    def __init__(self, weightIds: Iterable[str] | None, maxNorm: float) -> None:
        object.__setattr__(self, "weights", None if weightIds is None else tuple(weightIds))
        object.__setattr__(self, "max_norm", float(maxNorm))
        if not self.max_norm > 0:
            raise popart_exception(f"the norm that gradients are shrunk to is positive, not {maxNorm}")

    @staticmethod
    def clipAllWeights(maxNorm: float) -> ClipNormSettings:
        """The gradients of all weights together."""
        return ClipNormSettings(None, maxNorm)

    @staticmethod
    def clipWeights(weightIds: Iterable[str], maxNorm: float) -> ClipNormSettings:
        """The gradients of some weights together."""
        return ClipNormSettings(weightIds, maxNorm)

    def getWeightIds(self) -> list[str]:
        """Names of the weights; empty for all."""
        return list(self.weights or ())

    def getMaxNorm(self) -> float:
        """The norm."""
        return self.max_norm


Values = dict[str, OptimizerValue]


class Optimizer:
    """Base of the optimisers.

    Attributes:
        values: Numbers for all weights, by name without ``default``.
        specific: Numbers of single weights.
        clips: Norms that gradients are shrunk to.
    """

    DEFAULTS: ClassVar[dict[str, float]] = {}
    """Numbers by name, and what they are where they are left out."""

    def __init__(
        self, given: Mapping[str, Any] | None, clips: Iterable[ClipNormSettings] = (), accumulation: Any = None
    ) -> None:
        self.values = self._read(given or {}, {n: OptimizerValue(v) for n, v in self.DEFAULTS.items()}, prefixed=True)
        self.specific: dict[str, Values] = {}
        self.clips = tuple(clips)
        self._accumulation = _kind(accumulation)

    def _read(self, given: Mapping[str, Any], defaults: Values, *, prefixed: bool) -> Values:
        found = dict(defaults)
        for key, value in given.items():
            name = _plain(key) if prefixed else key
            if name not in self.DEFAULTS or (prefixed and key not in self._keys()):
                listed = self._keys() if prefixed else list(self.DEFAULTS)
                raise popart_exception(
                    f"{type(self).__name__} has no value {key!r}", remedy=f"the keys are {', '.join(listed)}"
                )
            if not isinstance(value, (tuple, list, OptimizerValue)) or (
                isinstance(value, (tuple, list)) and len(value) != 2
            ):
                raise popart_exception(
                    f"the value of {key!r} is a pair (number, whether it is constant), got {value!r}"
                )
            found[name] = value if isinstance(value, OptimizerValue) else OptimizerValue(value)
        self._check(found)
        return found

    def _keys(self) -> list[str]:
        plain = ("lossScaling", "nesterov")
        return [name if name in plain else f"default{name[0].upper()}{name[1:]}" for name in self.DEFAULTS]

    def _check(self, values: Values) -> None:
        if "lossScaling" in values and values["lossScaling"].value == 0:
            raise popart_exception("Loss scaling cannot be 0")
        rate = values.get("learningRate")
        if rate is not None and rate.value == 0 and rate.is_const:
            raise popart_exception("Constant learning rate of 0 is not allowed")
        for name, held in values.items():
            if held.value < 0:
                raise popart_exception(
                    f"negative {name} of {held.value:g} is not allowed, bailing as this might be a user error"
                )

    def insertSpecific(self, id: str, values: Mapping[str, Any]) -> None:
        """Let a weight have numbers of its own; those that are left out are this class's defaults."""
        defaults = {n: OptimizerValue(v) for n, v in self.DEFAULTS.items() if n != "lossScaling"}
        self.specific[id] = self._read(values, defaults, prefixed=False)

    def hasSpecific(self, id: str | None = None) -> bool:
        """True if a weight, or any, has numbers of its own."""
        return bool(self.specific) if id is None else id in self.specific

    def getLossScalingVal(self) -> float:
        """Factor of the loss."""
        return self.values["lossScaling"].value

    def _map(self, name: str) -> OptimizerValueMap:
        return OptimizerValueMap(self.values[name], {w: v[name] for w, v in self.specific.items()})

    def learningRates(self) -> OptimizerValueMap:
        """Learning rates."""
        return self._map("learningRate")

    def weightDecays(self) -> OptimizerValueMap:
        """Weight decays."""
        return self._map("weightDecay")

    def momentums(self) -> OptimizerValueMap:
        """Momenta."""
        return self._map("momentum")

    def rules(self, weights: Mapping[str, Value]) -> list[Group]:
        """Update rules of the network for weights by name: a group for those of the same numbers and the same norm.

        Raises:
            popart_exception: A norm is of a weight that there is not, or of one that has a norm already.
        """
        clips = self._clips(weights)
        alike: dict[tuple[str, int], list[Value]] = {}
        for name, value in weights.items():
            alike.setdefault((name if name in self.specific else "", clips.get(name, -1)), []).append(value)
        return [
            Group(self._clipped(self.rule(self._numbers(name)), clip), tuple(held))
            for (name, clip), held in alike.items()
        ]

    def _numbers(self, name: str) -> Values:
        """Numbers of a weight with its own; of the others without a name."""
        return {**self.specific[name], "lossScaling": self.values["lossScaling"]} if name else self.values

    def _clips(self, weights: Mapping[str, Value]) -> dict[str, int]:
        """Number of the norm of each weight that has one."""
        found: dict[str, int] = {}
        for number, clip in enumerate(self.clips):
            for name in weights if clip.weights is None else clip.weights:
                if name not in weights:
                    raise popart_exception(
                        f"the weight {name!r}, whose gradients are to be clipped, is none that is trained",
                        remedy=f"clipWeights of {', '.join(sorted(weights)[:4])}",
                    )
                if found.setdefault(name, number) != number:
                    raise popart_exception(
                        f"the gradient of {name!r} is to be clipped by two norms", remedy="one ClipNormSettings of it"
                    )
        return found

    def _clipped(self, rule: Rule, clip: int) -> Rule:
        if clip < 0:
            return rule
        return replace(rule, max_grad_norm=self.clips[clip].max_norm, clipped_with=f"clip{clip}")

    def rule(self, values: Values) -> Rule:
        """The update rule with some numbers."""
        raise NotImplementedError

    def _common(self, values: Values, **names: str) -> dict[str, Any]:
        """Numbers of a rule, and which of them may change."""
        made: dict[str, Any] = {mine: values[theirs].value for mine, theirs in names.items()}
        made["variable"] = frozenset(mine for mine, theirs in names.items() if not values[theirs].is_const)
        made["loss_scaling"] = values["lossScaling"].value
        if not values["lossScaling"].is_const:
            made["variable"] |= {"loss_scaling"}
        made["accumulation"] = self._accumulation
        return made

    def check_replacement(self, other: Optimizer) -> None:
        """Raise unless another optimiser differs only in numbers that are not constant.

        Raises:
            popart_exception: Another class, or constants that changed.
        """
        if type(other) is not type(self):
            before, after = type(self).__name__, type(other).__name__
            raise popart_exception(f"Can not replace optimizer of type {before} with new optimizer of type {after}")
        if other.clips != self.clips or other.specific.keys() != self.specific.keys():
            raise popart_exception("the new optimizer has other clip norm settings, or values of other weights")
        for mine, theirs in ((self.values, other.values), *((v, other.specific[w]) for w, v in self.specific.items())):
            for name, held in mine.items():
                if held.is_const and not theirs[name].is_const:
                    raise popart_exception(f"{name}: Can not replace a constant value with a non constant value.")
                if held.is_const and held.value != theirs[name].value:
                    raise popart_exception(f"{name}: Values are constant but do not match.")


def _plain(key: str) -> str:
    if key.startswith("default"):
        rest = key.removeprefix("default")
        return rest[:1].lower() + rest[1:]
    return key


def _kind(given: Any, default: ElementType = f32) -> ElementType:
    return default if given is None else element_type(code_of(given))


class SGD(Optimizer):
    """w ← w - lr · v with v ← μ · v + (1 - d) · (g + wd · w)."""

    DEFAULTS: ClassVar[dict[str, float]] = {
        "learningRate": 0.1,
        "weightDecay": 0.0,
        "momentum": 0.0,
        "dampening": 0.0,
        "velocityScaling": 1.0,
        "lossScaling": 1.0,
        "nesterov": 0.0,
    }

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        clip_norm_settings: Iterable[ClipNormSettings] = (),
        accumulatorAndMomentum: SGDAccumulatorAndMomentum = SGDAccumulatorAndMomentum.Combined,
        accumType: Any = None,
        accl1Type: Any = None,
    ) -> None:
        super().__init__(values, clip_norm_settings, accumType)
        self._separate = SGDAccumulatorAndMomentum(accumulatorAndMomentum) == SGDAccumulatorAndMomentum.Separate
        self._velocity = _kind(accl1Type)

    def dampenings(self) -> OptimizerValueMap:
        """Dampings of the momentum."""
        return self._map("dampening")

    def velocityScalings(self) -> OptimizerValueMap:
        """Factors of momenta as they are stored."""
        return self._map("velocityScaling")

    def _check(self, values: Values) -> None:
        super()._check(values)
        if values["velocityScaling"].value == 0:
            raise popart_exception("Velocity scaling cannot be 0")
        if values.get("nesterov", OptimizerValue(0)).value and values["dampening"].value:
            raise popart_exception("Nesterov momentum requires a dampening of 0")

    def rule(self, values: Values) -> Rule:
        """The update rule; damping holds from the first step on, and without momentum too."""
        common = self._common(
            values,
            lr="learningRate",
            momentum="momentum",
            dampening="dampening",
            velocity_scaling="velocityScaling",
            weight_decay="weightDecay",
        )
        nesterov = bool(values["nesterov"].value)
        return Sgd(**common, nesterov=nesterov, velocity_type=self._velocity, dampens_all=True)


class ConstSGD(SGD):
    """:class:`SGD` whose numbers are constants."""

    def __init__(
        self,
        learning_rate: float,
        weight_decay: float = 0.0,
        loss_scaling: float = 1.0,
        clip_norm_settings: Iterable[ClipNormSettings] = (),
    ) -> None:
        super().__init__(
            {
                "defaultLearningRate": (learning_rate, True),
                "defaultWeightDecay": (weight_decay, True),
                "lossScaling": (loss_scaling, True),
            },
            clip_norm_settings,
        )


class Adam(Optimizer):
    """Adam, AdaMax and LAMB."""

    DEFAULTS: ClassVar[dict[str, float]] = {
        "learningRate": 0.1,
        "weightDecay": 0.0,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-6,
        "lossScaling": 1.0,
        "maxWeightNorm": 10.0,
    }

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        mode: AdamMode = AdamMode.Adam,
        weight_decay_mode: WeightDecayMode = WeightDecayMode.Decay,
        accum_type: Any = None,
        accl1_type: Any = "FLOAT",
        accl2_type: Any = "FLOAT",
        clip_norm_settings: Iterable[ClipNormSettings] = (),
        scaled_optimizer_state: bool = False,
    ) -> None:
        super().__init__(values, clip_norm_settings, accum_type)
        self._mode, self._decay = AdamMode(mode), WeightDecayMode(weight_decay_mode)
        self._types = _kind(accl1_type), _kind(accl2_type)
        self._scaled = bool(scaled_optimizer_state)

    def beta1s(self) -> OptimizerValueMap:
        """Rates of the mean of gradients."""
        return self._map("beta1")

    def beta2s(self) -> OptimizerValueMap:
        """Rates of the mean of squares."""
        return self._map("beta2")

    def epss(self) -> OptimizerValueMap:
        """Numbers that keep divisors from zero."""
        return self._map("eps")

    def maxWeightNorms(self) -> OptimizerValueMap:
        """Largest norms of weights that count in LAMB."""
        return self._map("maxWeightNorm")

    def useScaledOptimizerState(self) -> bool:
        """True if state in 16 bits keeps the factor of the loss."""
        return self._scaled

    def rule(self, values: Values) -> Rule:
        """The update rule of the mode."""
        common = self._common(
            values, lr="learningRate", beta1="beta1", beta2="beta2", eps="eps", weight_decay="weightDecay"
        )
        common |= {
            "decoupled": self._decay == WeightDecayMode.Decay,
            "bias_correction": self._mode not in (AdamMode.AdamNoBias, AdamMode.LambNoBias),
            "first_type": self._types[0],
            "second_type": self._types[1],
        }
        if self._mode in (AdamMode.Lamb, AdamMode.LambNoBias):
            in_gradients = not common.pop("decoupled")
            return Lamb(**common, max_weight_norm=values["maxWeightNorm"].value, decays_gradients=in_gradients)
        if self._mode == AdamMode.AdaMax:
            return Adamax(**common)
        return AdamRule(**common, scaled_state=self._scaled)


class Adaptive(Optimizer):
    """RMSProp, AdaGrad and AdaDelta."""

    DEFAULTS: ClassVar[dict[str, float]] = {
        "learningRate": 0.01,
        "weightDecay": 0.0,
        "alpha": 0.99,
        "momentum": 0.0,
        "eps": 1e-6,
        "lossScaling": 1.0,
    }

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        mode: AdaptiveMode = AdaptiveMode.RMSProp,
        weight_decay_mode: WeightDecayMode = WeightDecayMode.L2Regularization,
        accum_type: Any = None,
        accl1_type: Any = "FLOAT",
        accl2_type: Any = "FLOAT",
        accl3_type: Any = "FLOAT",
        rmsprop_tf_variant: bool = False,
    ) -> None:
        super().__init__(values, accumulation=accum_type)
        self._mode, self._tf = AdaptiveMode(mode), bool(rmsprop_tf_variant)
        self._decay = WeightDecayMode(weight_decay_mode)
        self._types = _kind(accl1_type), _kind(accl2_type), _kind(accl3_type)

    def alphas(self) -> OptimizerValueMap:
        """Rates of the mean of squares."""
        return self._map("alpha")

    def epss(self) -> OptimizerValueMap:
        """Numbers that keep divisors from zero."""
        return self._map("eps")

    def rule(self, values: Values) -> Rule:
        """The update rule of the mode."""
        names = {"lr": "learningRate", "eps": "eps", "weight_decay": "weightDecay"}
        decay: dict[str, Any] = {"decoupled": self._decay == WeightDecayMode.Decay}
        first, second, third = self._types
        if self._mode == AdaptiveMode.AdaGrad:
            return Adagrad(**self._common(values, **names), **decay, sum_type=first)
        if self._mode == AdaptiveMode.AdaDelta:
            return Adadelta(**self._common(values, **names, rho="alpha"), **decay, square_type=first, step_type=second)
        return RmsProp(
            **self._common(values, **names, alpha="alpha", momentum="momentum"),
            **decay,
            centered=self._mode == AdaptiveMode.CenteredRMSProp,
            eps_inside=self._tf,
            first_type=second,
            second_type=first,
            velocity_type=third,
        )
