"""PopLibs' namespaces of norms: ``bn.batch_normalise`` is ``batch_normalise``, and so on."""

from __future__ import annotations

from types import SimpleNamespace

from abele.poplibs.popnn import norms
from abele.poplibs.popnn.cpp_forms import FORMS
from abele.poplibs.poputil.guard import guarded_functions
from abele.poplibs.poputil.names import camel_aliases


def _space(kind: str) -> SimpleNamespace:
    names = [n for n in norms.__all__ if f"{kind}_norm" in n]
    functions = guarded_functions(vars(norms), names, FORMS)
    return SimpleNamespace(**functions, **camel_aliases(functions, names))


bn, gn, ln = _space("batch"), _space("group"), _space("layer")
in_ = _space("instance")
