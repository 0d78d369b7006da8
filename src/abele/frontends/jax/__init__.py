"""Functions of JAX on the modelled machine."""
