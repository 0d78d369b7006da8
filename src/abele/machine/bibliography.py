"""The works that the sources of machine constants abbreviate."""

from __future__ import annotations

import re
from collections.abc import Iterable

WORKS = {
    "PL": "Graphcore PopLibs, github.com/graphcore/poplibs, state of August 2023",
    "PLhist": "history of github.com/graphcore/poplibs",
    "GC-ANL": "Graphcore IPUs: Accelerating Argonne's AI/ML Applications, slides",
    "GC-ESO": "G. Soubrane, Efficient AI Compute Platform, slides, workshop RTC4AO, ESO Garching, November 2023",
    "GC-SW": "A. Tsyplikhin, Software Stack: TensorFlow, PyTorch, Poplar, slides, June 2024",
    "GC-MLP": "M. Krell, SW/HW Co-Optimization on the IPU: an MLPerf Case Study, slides",
    "TESS": "graphcore-research/tessellate-ipu, tests and notebooks with measurements on Bow",
    "LBM": "thorbenlouw/lbm-graphcore, measurements on GC2",
    "OSM": "osmarks/ipu-stack, reverse engineering and measurements of a C600",
    "SAG": "Saghetti0/graphcore-ipu-research, reverse engineering of GC2",
    "ISA": "graphcore/ipu_assembly_support",
    "POPLINER": "graphcore/popliner, memory profiles of compiled models",
    "ML11": "MLCommons training results v1.1, Graphcore's system descriptions",
    "ML20": "MLCommons training results v2.0, Graphcore's system descriptions",
    "LOUW": "Louw and McIntosh-Smith, Using the Graphcore IPU for traditional HPC applications, AccML 2021",
    "CIT": "Jia et al., Dissecting the Graphcore IPU architecture via microbenchmarking, arXiv 1912.03413",
}

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9-]*")


def cited_works(texts: Iterable[str]) -> dict[str, str]:
    """The works that ``texts`` abbreviate, abbreviation to full reference."""
    words = {word for text in texts for word in _WORD.findall(text)}
    return {key: work for key, work in WORKS.items() if key in words}
