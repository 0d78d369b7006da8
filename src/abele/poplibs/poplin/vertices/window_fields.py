"""The elements of ``walk``, the vector of numbers that :mod:`abele.poplibs.poplin.vertices.expand` walks its box by.

Declared once, for the vertex and for :mod:`abele.poplibs.poplin.rewrites.expand_kernel`, which writes them. ``X`` is
the stride in the source and ``Y`` that in the result, in elements; dimensions are named as in
:mod:`~abele.poplibs.poplin.vertices.geometry_fields`. The input of output o and kernel position k is out_step · o +
kernel_step · k + offset, where there is one.
"""

from __future__ import annotations

NUM_G, X_G, Y_G = range(3)
NUM_B, X_B, Y_B = range(3, 6)
NUM_CI, X_CI, Y_CI = range(6, 9)

# what each of the three field dimensions has, in this order
NUM_O0, Y_O0, NUM_K0, Y_K0, NUM_I0, X_I0, OUT_STEP0, KERNEL_STEP0, OFFSET0 = range(9, 18)
NUM_O1, Y_O1, NUM_K1, Y_K1, NUM_I1, X_I1, OUT_STEP1, KERNEL_STEP1, OFFSET1 = range(18, 27)
NUM_O2, Y_O2, NUM_K2, Y_K2, NUM_I2, X_I2, OUT_STEP2, KERNEL_STEP2, OFFSET2 = range(27, 36)

NUM_O, Y_O, NUM_K, Y_K = (NUM_O0, NUM_O1, NUM_O2), (Y_O0, Y_O1, Y_O2), (NUM_K0, NUM_K1, NUM_K2), (Y_K0, Y_K1, Y_K2)
NUM_I, X_I, OFFSET = (NUM_I0, NUM_I1, NUM_I2), (X_I0, X_I1, X_I2), (OFFSET0, OFFSET1, OFFSET2)
OUT_STEP, KERNEL_STEP = (OUT_STEP0, OUT_STEP1, OUT_STEP2), (KERNEL_STEP0, KERNEL_STEP1, KERNEL_STEP2)

# channels, with kernel positions that count as channels: what a position counts, size and distance of groups
C_K0, C_K1, C_K2, GROUP, Y_GROUP = range(36, 41)
C_K = (C_K0, C_K1, C_K2)

# zeros after the last of the channels in groups, and how many channels there are before them
NUM_ZEROS, FIRST_ZERO = range(41, 43)

NUM_FIELDS = 43
