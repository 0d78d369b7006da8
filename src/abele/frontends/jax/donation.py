"""Choice of the result that takes the place of each donated argument.

JAX gives a donated argument to the first result of its type. Here a whole argument is first matched to a result of the
same structure: of ``step(params, moments, x) -> (moments, params, loss)``, whose leaves are all alike, each tree stays
where it is, and the next call finds it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

Type = tuple[tuple[int, ...], Any]


def placed_results(
    tree: Any, types: Sequence[Type], donated: Sequence[bool], result_tree: Any, result_types: Sequence[Type]
) -> dict[int, int]:
    """Number of the result in the place of each donated argument that finds one.

    Args:
        tree: Tree of the arguments.
        types: Shape and element type of each.
        donated: True for those that are donated.
        result_tree: Tree of the results.
        result_types: Shape and element type of each.
    """
    place: dict[int, int] = {}
    taken: set[int] = set()
    for kind, leaves in _parts(tree):
        if jax.tree_util.treedef_is_leaf(kind) or not leaves or not all(donated[n] for n in leaves):
            continue
        for other, results in _parts(result_tree):
            alike = other == kind and not taken.intersection(results)
            if alike and [types[n] for n in leaves] == [result_types[n] for n in results]:
                place |= zip(leaves, results, strict=True)
                taken |= set(results)
                break
    for number, given in enumerate(donated):
        if given and number not in place:
            fits = (n for n, t in enumerate(result_types) if n not in taken and t == types[number])
            found = next(fits, None)
            if found is not None:
                place[number] = found
                taken.add(found)
    return place


def _parts(tree: Any) -> list[tuple[Any, range]]:
    """The arguments, or the members of a result: tree of each and the numbers of its leaves; the whole comes last."""
    members = [tree]
    if not jax.tree_util.treedef_is_leaf(tree):
        members = list(tree.children())
        if len(members) == 2 and tree.node_data()[0] is tuple and members[1].node_data() == (dict, []):
            members = list(members[0].children())  # Arguments without names.
    parts, first = [], 0
    for member in members:
        parts.append((member, range(first, first + member.num_leaves)))
        first += member.num_leaves
    return [*parts, (tree, range(tree.num_leaves))] if members != [tree] else parts
