"""Host kernels of sparse products, which all of popsparse runs in native mode.

`host_product` makes S·X and Sᵀ·X, `host_sampled_product` G·Xᵀ at the places of S. Both give steps for `note_host`.
"""

from abele.poplibs.popsparse.host.products import host_product
from abele.poplibs.popsparse.host.sampled import host_sampled_product

__all__ = ["host_product", "host_sampled_product"]
