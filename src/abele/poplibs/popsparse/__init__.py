"""popsparse: products with sparse matrices.

``dynamic`` takes its pattern when it runs, ``static_`` when it is compiled, ``experimental`` as a mask of blocks. Host
formats are PopLibs' three: `COOMatrix`, `CSRMatrix`, `CSCMatrix`.
"""

from abele.poplibs.popsparse import dynamic, experimental, static_
from abele.poplibs.popsparse.formats import COOMatrix, CSCMatrix, CSRMatrix
from abele.poplibs.poputil.codelets import add_codelets

__all__ = ["COOMatrix", "CSCMatrix", "CSRMatrix", "add_codelets", "dynamic", "experimental", "static_"]

addCodelets = add_codelets  # noqa: N816
