"""poplin: matmuls, convolutions and their gradients, planned over the tiles."""
