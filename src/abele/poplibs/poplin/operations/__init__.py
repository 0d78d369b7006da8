"""The public operations: matrix products, convolutions and their gradients, and tensors created for them."""
