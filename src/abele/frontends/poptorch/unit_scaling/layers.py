"""PyTorch's layers, scaled: weights begin with variance 1, results and gradients have it.

Each is a subclass of PyTorch's layer with its parameters under their names, so that optimisers, checkpoints and
programs that look for a kind of layer know them.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from abele.frontends.poptorch.errors import OptionValueError
from abele.frontends.poptorch.unit_scaling import functional
from abele.frontends.poptorch.unit_scaling.activations import checked_multiplier
from abele.frontends.poptorch.unit_scaling.products import Product, linear_product
from abele.frontends.poptorch.unit_scaling.rules import Rules, constrained, rules_of


class UnitScaled:
    """Base of scaled layers.

    Attributes:
        rules: Rules of their factors.
        constraint: Rule that makes the scales of result and gradient one; None as the rules have it.
    """

    rules: Rules
    constraint: str | None

    def _scaled_by(self, rules: str | Rules, constraint: str | None = None) -> None:
        self.rules, self.constraint = rules_of(rules), constraint
        if constraint is not None:
            constrained(constraint, 1.0, 1.0)


def _normal_weights(layer: Any) -> None:
    """Weights of variance 1, and biases of 0."""
    nn.init.normal_(layer.weight)
    if getattr(layer, "bias", None) is not None:
        nn.init.zeros_(layer.bias)


class UnitLinear(nn.Linear, UnitScaled):
    """A scaled fully connected layer.

    Args:
        in_features: Features that it reads.
        out_features: Features that it makes.
        bias: True for a bias.
        rules: Rules of the factors.
        constraint: Rule that makes the scales of result and gradient one; None as the rules have it.
        readout: True for the last layer, which gives scores (:func:`~.functional.linear_readout`).
        **kwargs: ``device`` and ``dtype`` of its parameters.
    """

    product: Product
    """Function that multiplies; :func:`abele.poptorch.fp8.fp8_linear` puts a product of 8-bit floats here."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        rules: str | Rules = "library",
        constraint: str | None = None,
        readout: bool = False,
        **kwargs: Any,
    ) -> None:
        self._scaled_by(rules, constraint)
        self.readout, self.product = readout, linear_product
        super().__init__(in_features, out_features, bias, **kwargs)

    def reset_parameters(self) -> None:
        """Weights of variance 1, biases of 0."""
        _normal_weights(self)

    def forward(self, input: Tensor) -> Tensor:
        """Features [..., out] of features [..., in]."""
        if self.readout:
            return functional.linear_readout(input, self.weight, self.bias, rules=self.rules, product=self.product)
        return functional.linear(
            input, self.weight, self.bias, rules=self.rules, constraint=self.constraint, product=self.product
        )

    def extra_repr(self) -> str:
        """Sizes and rules."""
        kind = ", readout" if self.readout else ""
        return f"{super().extra_repr()}, rules={self.rules.name!r}{kind}"


class UnitReadout(UnitLinear):
    """The last layer, which gives scores."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, **kwargs: Any) -> None:
        super().__init__(in_features, out_features, bias, readout=True, **kwargs)


class _UnitConv(UnitScaled):
    """Base of scaled convolutions."""

    def _checked(self, padding_mode: str) -> None:
        if padding_mode != "zeros":
            raise OptionValueError(f"unit-scaled convolutions pad with zeros, not with {padding_mode!r}")

    def _numbers(self) -> dict[str, Any]:
        layer: Any = self
        names = ("stride", "padding", "dilation", "groups")
        return {name: getattr(layer, name) for name in names} | {"rules": self.rules, "constraint": self.constraint}


class UnitConv1d(_UnitConv, nn.Conv1d):
    """A scaled convolution over a sequence, with the arguments of :class:`torch.nn.Conv1d`."""

    def __init__(
        self, *args: Any, rules: str | Rules = "library", constraint: str | None = None, **kwargs: Any
    ) -> None:
        self._scaled_by(rules, constraint)
        nn.Conv1d.__init__(self, *args, **kwargs)
        self._checked(self.padding_mode)

    def reset_parameters(self) -> None:
        """Kernels of variance 1, biases of 0."""
        _normal_weights(self)

    def forward(self, input: Tensor) -> Tensor:
        """[batch, out, length] of [batch, in, length]."""
        return functional.conv1d(input, self.weight, self.bias, **self._numbers())


class UnitConv2d(_UnitConv, nn.Conv2d):
    """A scaled convolution over an image, with the arguments of :class:`torch.nn.Conv2d`."""

    def __init__(
        self, *args: Any, rules: str | Rules = "library", constraint: str | None = None, **kwargs: Any
    ) -> None:
        self._scaled_by(rules, constraint)
        nn.Conv2d.__init__(self, *args, **kwargs)
        self._checked(self.padding_mode)

    def reset_parameters(self) -> None:
        """Kernels of variance 1, biases of 0."""
        _normal_weights(self)

    def forward(self, input: Tensor) -> Tensor:
        """[batch, out, height, width] of [batch, in, height, width]."""
        return functional.conv2d(input, self.weight, self.bias, **self._numbers())


class UnitEmbedding(UnitScaled, nn.Embedding):
    """A scaled embedding, with the arguments of :class:`torch.nn.Embedding` but those that change or weigh rows."""

    def __init__(self, num_embeddings: int, embedding_dim: int, *, rules: str | Rules = "library", **kw: Any) -> None:
        refused = [name for name in ("max_norm", "scale_grad_by_freq", "sparse") if kw.get(name)]
        if refused:
            raise OptionValueError(f"a unit-scaled embedding has no {refused[0]}")
        self._scaled_by(rules)
        nn.Embedding.__init__(self, num_embeddings, embedding_dim, **kw)

    def forward(self, input: Tensor) -> Tensor:
        """Rows [..., width] of numbers [...]."""
        return functional.embedding(input, self.weight, self.padding_idx, rules=self.rules)


class UnitLayerNorm(UnitScaled, nn.LayerNorm):
    """A layer norm whose weights have scaled gradients."""

    def __init__(self, *args: Any, rules: str | Rules = "library", **kwargs: Any) -> None:
        self._scaled_by(rules)
        nn.LayerNorm.__init__(self, *args, **kwargs)

    def forward(self, input: Tensor) -> Tensor:
        """Rows of mean 0 and variance 1, times weights."""
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps, rules=self.rules)


class UnitRMSNorm(UnitScaled, nn.RMSNorm):
    """A norm by the root mean square whose weights have scaled gradients."""

    def __init__(self, *args: Any, rules: str | Rules = "library", **kwargs: Any) -> None:
        self._scaled_by(rules)
        nn.RMSNorm.__init__(self, *args, **kwargs)

    def forward(self, input: Tensor) -> Tensor:
        """Rows of mean square 1, times weights."""
        return functional.rms_norm(input, self.normalized_shape, self.weight, self.eps, rules=self.rules)


class _Activation(UnitScaled, nn.Module):
    """Base of scaled activation functions: μ, rules and constraint."""

    def __init__(self, *, mult: float = 1.0, rules: str | Rules = "library", constraint: str | None = None) -> None:
        nn.Module.__init__(self)
        self._scaled_by(rules, constraint)
        self.mult = checked_multiplier(mult)

    def _how(self) -> dict[str, Any]:
        return {"mult": self.mult, "rules": self.rules, "constraint": self.constraint}


class UnitGELU(_Activation):
    """A scaled GELU."""

    def __init__(self, approximate: str = "none", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """The function of each element."""
        return functional.gelu(input, self.approximate, **self._how())


class UnitSiLU(_Activation):
    """A scaled SiLU."""

    def forward(self, input: Tensor) -> Tensor:
        """The function of each element."""
        return functional.silu(input, **self._how())


class UnitTanh(_Activation):
    """A scaled hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        """The function of each element."""
        return functional.tanh(input, **self._how())


class UnitReLU(_Activation):
    """A scaled max(0, x)."""

    def forward(self, input: Tensor) -> Tensor:
        """The function of each element."""
        return functional.relu(input, rules=self.rules, constraint=self.constraint)


class UnitSoftmax(_Activation):
    """A scaled softmax along a dimension."""

    def __init__(self, dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Odds along the dimension, scaled."""
        return functional.softmax(input, self.dim, **self._how())


class UnitDropout(nn.Dropout):
    """A dropout that keeps variance."""

    def forward(self, input: Tensor) -> Tensor:
        """The input, with elements dropped in training."""
        return functional.dropout(input, self.p, self.training)


class UnitCrossEntropyLoss(nn.Module):
    """A cross entropy whose gradient has variance 1."""

    def __init__(self, *, reduction: str = "mean", ignore_index: int = -100, mult: float = 1.0) -> None:
        super().__init__()
        self.reduction, self.ignore_index, self.mult = reduction, ignore_index, checked_multiplier(mult)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of scores [rows, classes] and classes [rows]."""
        return functional.cross_entropy(input, target, self.reduction, self.ignore_index, mult=self.mult)
