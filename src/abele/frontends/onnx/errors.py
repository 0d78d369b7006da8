"""Errors of models, under the names by which users catch them."""

from __future__ import annotations

from abele.errors import AbeleError


class ModelError(AbeleError, ValueError):
    """An ONNX model that says something impossible."""


class ModelFileError(ModelError):
    """A file without an ONNX model, or data that is not where the model says."""


class ModelShapeError(ModelError):
    """A shape that loading does not know, or another one than was given.

    Attributes:
        tensor: Name of the tensor whose elements have to be known; empty for an input whose shape is wrong.
    """

    tensor = ""

    @classmethod
    def unknown(cls, node: str, tensor: str, what: str, at: str | None) -> ModelShapeError:
        """The error of a node whose operands only a run knows.

        Args:
            node: The node in words.
            tensor: Name of the tensor.
            what: Role of the elements, in words.
            at: Place of the node.
        """
        error = cls(
            f"{node} needs {what} before the model runs, and {tensor!r} is computed from inputs",
            at=at,
            because="programs of the machine are compiled for one shape",
            remedy=f"load(…, values={{{tensor!r}: …}}) if it is an input, or give the shapes that it is computed from",
        )
        error.tensor = tensor
        return error
