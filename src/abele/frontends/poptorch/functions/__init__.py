"""Functions of PopTorch's own, for use in a model, and operations that users write."""
