"""The elements of ``geometry``, the vector of numbers that a partial-product vertex walks its slices by.

Declared once: :func:`abele.poplibs.poplin.lowering.grid.geometry` writes the elements under these names, and the
vertices of :mod:`abele.poplibs.poplin.vertices.partial_products` read them. They are module constants because the
vertex language folds those (``s[at.X_G]`` costs what ``s[28]`` does).

Names say extent, axis relation or stride, and the dimension: groups ``G``, samples ``B``, channels ``CI`` and ``CO``,
outputs ``O``, kernel positions ``K``, inputs ``I``. Samples and channels have two levels, as they are stored in blocks:
1 for the number of the block, 0 for the place in it. The three field dimensions are numbered 0 to 2; contractions of
fewer have leading ones of one index.
"""

from __future__ import annotations

FIELD_DIMS = 3
"""Field dimensions that a vertex loops over."""

NUM_CO1, NUM_CO0, NUM_B1, NUM_B0, NUM_G, NUM_CI1, NUM_CI0 = range(7)
NUM_O0, NUM_O1, NUM_O2 = NUM_O = range(7, 10)
NUM_K0, NUM_K1, NUM_K2 = NUM_K = range(10, 13)
NUM_I0, NUM_I1, NUM_I2 = NUM_I = range(13, 16)

# in_step · i = out_step · o + kernel_step · k + offset, in the slice's own indices
IN_STEP0, IN_STEP1, IN_STEP2 = IN_STEP = range(16, 19)
OUT_STEP0, OUT_STEP1, OUT_STEP2 = OUT_STEP = range(19, 22)
KERNEL_STEP0, KERNEL_STEP1, KERNEL_STEP2 = KERNEL_STEP = range(22, 25)
OFFSET0, OFFSET1, OFFSET2 = OFFSET = range(25, 28)

# strides in elements, of the input x, the weights w and the output y; places in a channel block follow each other in
# both inputs, so CI0 has none
X_G, X_B1, X_B0, X_CI1 = range(28, 32)
X_I0, X_I1, X_I2 = X_I = range(32, 35)
W_G, W_CO1, W_CO0, W_CI1 = range(35, 39)
W_K0, W_K1, W_K2 = W_K = range(39, 42)
Y_G, Y_B1, Y_B0, Y_CO1, Y_CO0 = range(42, 47)
Y_O0, Y_O1, Y_O2 = Y_O = range(47, 50)

NUM_FIELDS = 50
