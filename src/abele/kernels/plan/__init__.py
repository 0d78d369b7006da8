"""From bound kernels to a native plan: the passes in order, memory placed, leaves with their arguments."""
