"""Operations by their kind; importing this fills the table."""

from abele.expr.operation import define
from abele.expr.operations import arithmetic, bits, comparisons, elementary, nonlinearities, rounding, special

for _operation in (
    *arithmetic.OPERATIONS,
    *rounding.OPERATIONS,
    *elementary.OPERATIONS,
    *comparisons.OPERATIONS,
    *bits.OPERATIONS,
    *special.OPERATIONS,
):
    define(_operation)
for _operation in nonlinearities.operations():
    define(_operation)
