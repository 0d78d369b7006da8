"""Report files as earlier versions of the format had them, made from reports of today."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np

from abele.report import Report, Text
from abele.report.schema import TABLES


def save_as(report: Report, path: Path, version: int) -> Path:
    """Write a report as version 1 or 2 of the format had it: compressed, text columns' words in the document."""
    words: dict[str, dict[str, list[str]]] = {}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, schema in TABLES.items():
            if schema.since > version:
                continue
            words[name] = {}
            for key, spec in schema.columns.items():
                if spec.since > version:
                    continue
                column = getattr(report, name).columns[key]
                if isinstance(column, Text):
                    words[name][key] = list(column.words)
                archive.writestr(f"{name}/{key}.npy", npy(column.codes if isinstance(column, Text) else column))
        archive.writestr("memory.npy", npy(report.memory.bytes))
        archive.writestr("compute_cycles_by_tile.npy", npy(report.compute_cycles_by_tile))
        if version == 2:
            names = report.groups["name"].tolist()
            words["steps"]["groups"] = names
            archive.writestr("steps/groups.npy", npy(np.zeros(len(report.steps), np.int32)))
        memory = {"categories": report.memory.categories, "available_bytes": report.memory.available_bytes}
        document = {"format": "abele-report", "version": version, "target": report.target, "graph": report.graph}
        document |= {"meta": report.meta, "memory": memory, "words": words}
        archive.writestr("report.json", json.dumps(document))
    return path


def npy(array: np.ndarray) -> bytes:
    """An array as an ``.npy`` file."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array, order="C"), version=(1, 0))
    return stream.getvalue()
