"""Build of the documentation as a site: ``make docs``. Everything that a page needs lies beside it."""

from __future__ import annotations

import importlib
import re
from typing import Any

from sphinx.application import Sphinx

import abele

project = "Abele"
author = "the Abele authors"
release = version = abele.__version__
copyright = "the Abele authors. Apache-2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
suppress_warnings = ["ref.python"]
"""A class that two modules offer, such as Graph and Poplar's Graph, may be meant by either."""

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
myst_ref_domains = ["std", "py"]

autodoc_member_order = "groupwise"
autodoc_default_options = {
    "members": True,
    "show-inheritance": True,
    "inherited-members": "object, BaseException, Exception, Enum, int, str, tuple, list, dict, Module, Optimizer, "
    "DataLoader",
}
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
autodoc_type_aliases = {"npt.ArrayLike": "ArrayLike"}
autodoc_inherit_docstrings = False
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
add_module_names = False
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"Abele {release}"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["abele.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#2f7d57", "color-brand-content": "#2f7d57"},
    "dark_css_variables": {"color-brand-primary": "#7fcca5", "color-brand-content": "#7fcca5"},
}
copybutton_prompt_text = r">>> |\$ "
copybutton_prompt_is_regexp = True

HOMES = {
    "abele.report": "api/report",
    "abele.machine": "api/machine",
    "abele": "api/abele",
    "abele.poplar": "api/poplar",
}
"""Modules that offer the same classes, and their pages; a class is described on the first page that has it."""
_LITERAL = re.compile(r"(``.*?``|:\w+:`.*?`)")


def _first_page(thing: Any) -> str | None:
    """Page that describes a class offered by several modules; None for a class offered once."""
    if not isinstance(thing, type):
        return None
    for module, page in HOMES.items():
        offered = importlib.import_module(module)
        if any(getattr(offered, name) is thing for name in offered.__all__):
            return page
    return None


def skip_described(app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """Leave out classes that an earlier page describes, or that a class offers and its module describes."""
    if what == "class" and isinstance(thing, type) and "." not in thing.__qualname__:
        return True
    page = app.env.current_document.docname
    first = _first_page(thing) if what == "module" and page in HOMES.values() else None
    return True if first not in (None, page) else None


def tidy_docstring(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Take asterisks as they stand, as in ``[batch, *field]``, and describe a second name by its first."""
    plain, own = name.rsplit(".", 1)[-1], getattr(thing, "__name__", "")
    if what == "function" and own and own != plain and not own.startswith("_"):
        lines[:] = [f"Another name of :func:`{own}`."]
    lines[:] = ["".join(_escaped(part) for part in _LITERAL.split(line)) for line in lines]


def _escaped(part: str) -> str:
    return part if _LITERAL.fullmatch(part) else re.sub(r"(?<!\\)([*|])(?=\S)", r"\\\1", part)


def setup(app: Sphinx) -> None:
    """Register what is above."""
    app.connect("autodoc-skip-member", skip_described)
    app.connect("autodoc-process-docstring", tidy_docstring, priority=400)
