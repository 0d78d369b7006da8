"""Operators with a lowering, and the nodes of a model without one."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator

import onnx

from abele.frontends.onnx import ops as _ops  # noqa: F401  (registers the handlers)
from abele.frontends.onnx.registry import STANDARD, domain_of, find, names


@functools.cache
def supported(domain: str = STANDARD) -> tuple[str, ...]:
    """Operators of a domain that have a lowering: one of ours, or a function that ONNX defines them by."""
    defined = {
        s.name
        for s in onnx.defs.get_all_schemas()
        if s.domain == domain and (s.has_function or s.has_context_dependent_function)
    }
    return tuple(sorted(defined | set(names(domain))))


def count_operators(proto: onnx.ModelProto) -> dict[str, int]:
    """Number of nodes of each operator, most first; those of functions once, and of graphs inside too."""
    counted = Counter(_label(node) for node in _nodes(proto))
    return dict(sorted(counted.items(), key=lambda entry: (-entry[1], entry[0])))


def unsupported_nodes(proto: onnx.ModelProto) -> list[str]:
    """Operators of a model that have no lowering in their version."""
    versions = {domain_of(o.domain): o.version for o in proto.opset_import}
    own = {(f.domain, f.name) for f in proto.functions}
    missing = set()
    for node in _nodes(proto):
        domain = domain_of(node.domain)
        if (node.domain, node.op_type) in own or find(domain, node.op_type, versions.get(domain, 1)) is not None:
            continue
        if node.op_type not in supported(domain):
            missing.add(_label(node))
    return sorted(missing)


def _label(node: onnx.NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if domain_of(node.domain) else str(node.op_type)


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    waiting = [*proto.graph.node, *(n for f in proto.functions for n in f.node)]
    while waiting:
        node = waiting.pop()
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                waiting.extend(graph.node)
