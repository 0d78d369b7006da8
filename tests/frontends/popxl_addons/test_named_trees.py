"""Trees of names: what goes in comes out, under the names that it has."""

from __future__ import annotations

import copy
import pickle

import pytest

from abele import popxl_addons as addons
from abele.errors import AbeleError
from abele.frontends.popxl_addons.errors import TreeNameError


def tree() -> addons.DotTree[int]:
    return addons.DotTree.from_dict({"b": 3, "layer": {"10": {"w": 2}, "2.w": 1}})


def test_a_tree_is_read_by_attributes_and_by_names_with_dots() -> None:
    made = tree()
    assert made.layer["10"].w == made["layer.10.w"] == made.get("layer.10.w") == 2
    assert made.get("none", 7) == 7
    assert "layer.10" in made
    assert "layer.3" not in made
    assert "" not in made
    assert made.keys() == ["b", "layer"]
    assert not hasattr(made, "missing")
    with pytest.raises(TreeNameError, match=r"has no 'layer\.10\.v'") as caught:
        made["layer.10.v"]
    assert "layer.10.w" in str(caught.value)
    assert isinstance(caught.value, AttributeError | KeyError | AbeleError)


def test_flat_listings_are_sorted_whatever_the_order_of_insertion() -> None:
    made = tree()
    other = addons.DotTree[int]().insert("layer.2.w", 1).insert("layer.10.w", 2).insert("b", 3)
    assert made.to_dict() == other.to_dict() == {"b": 3, "layer.10.w": 2, "layer.2.w": 1}
    assert made.unpack() == other.unpack()
    assert addons.DotTree.pack(*made.unpack()) == made == other
    assert made.to_mapping(made.map(lambda v: -v)) == {1: -1, 2: -2, 3: -3}
    assert made.filter_keys(["layer.10", "b"]).to_dict() == {"b": 3, "layer.10.w": 2}
    for same in (made.copy(), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        same.pop("layer.10.w")
        same.b = 4
        assert made.to_dict() == other.to_dict()


def test_names_are_given_once() -> None:
    made = tree()
    with pytest.raises(TreeNameError, match="'b' is taken"):
        made.insert("b", 1)
    with pytest.raises(TreeNameError, match="'layer' is taken"):
        made.insert("layer", 1)
    with pytest.raises(TreeNameError, match="goes through 'b', which is a leaf"):
        made.insert("b.c", 1)
    made.insert("b", 5, overwrite=True).update({"layer.2": {"w": 6}, "new": 7})
    assert made.to_dict() == {"b": 5, "layer.10.w": 2, "layer.2.w": 6, "new": 7}
    assert made.pop("layer").keys() == ["10", "2"]
    assert made.pop("layer", None) is None


@pytest.mark.parametrize("name", ["", ".a", "a.", "a..b"])
def test_names_are_words_with_dots_between(name: str) -> None:
    with pytest.raises(ValueError, match="is no name"):
        tree().insert(name, 1)


def test_numbers_are_names() -> None:
    made = addons.DotTree[int]().insert(0, 1).insert("layer.1", 2)
    made.layer[10] = 3
    assert made.to_dict() == {"0": 1, "layer.1": 2, "layer.10": 3}
    assert (made[0], made.layer[1], made.layer.get(2, None)) == (1, 2, None)
    assert 10 in made.layer
    assert 0 not in made.layer
    assert made.filter_keys([0]).pop(0) == 1


@pytest.mark.parametrize("name", [-1, True, None, ("a",)])
def test_names_are_strings_or_numbers(name: object) -> None:
    with pytest.raises(TypeError, match="is a str"):
        tree().insert(name, 1)  # type: ignore[arg-type]


def test_pack_takes_as_many_values_as_names() -> None:
    with pytest.raises(ValueError, match="2 names takes as many values, not 1"):
        addons.DotTree.pack(["a", "b"], [1])
