"""Notes on nodes: attributes that say where and how a node is to run, and change nothing of its results.

PopART's builder leaves them, and models that it wrote have them.
"""

from __future__ import annotations

from typing import Any

import onnx

from abele.network.ir import Place, PlanHint

NOTES = {
    "ipu": "__ipu_number",
    "stage": "__pipeline_stage",
    "phase": "__execution_phase",
    "priority": "__schedule_priority",
    "recompute": "__recompute_output",
    "location": "__output_tensor_location",
    "outline": "__outline_attributes",
    "group": "__collective_comm_group",
    "checkpoint": "__checkpoint",
    "patterns": "__exclude_patterns",
    "inplace": "__inplace_op_names",
    "partials": "__partials_type",
    "memory": "__available_memory_proportion",
    "dithering": "__enable_conv_dithering",
    "serialize": "__serialization_mode",
    "factor": "__serialization_factor",
    "precision": "__serialization_keep_precision",
}
"""PopART's names of notes, by what they say."""


def is_note(name: str) -> bool:
    """True for an attribute that is a note."""
    return name.startswith("__")


def notes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Notes on a node by name."""
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if is_note(a.name)}


def place_of(notes: dict[str, Any], around: Place) -> Place:
    """Place of a node by its notes; without any, that of its graph."""
    ipu, stage, phase = (notes.get(NOTES[name]) for name in ("ipu", "stage", "phase"))
    if ipu is None and stage is None and phase is None:
        return around
    return Place(
        ipu=around.ipu if ipu is None else int(ipu),
        pipeline_stage=around.pipeline_stage if stage is None else int(stage),
        phase=around.phase if phase is None else int(phase),
    )


def hint_of(notes: dict[str, Any]) -> PlanHint | None:
    """Hint for the plan of a product, by the notes on its node."""
    share = notes.get(NOTES["memory"])
    return None if share is None else PlanHint(proportion=float(share))
