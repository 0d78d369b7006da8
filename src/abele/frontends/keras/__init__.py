"""Keras on the modelled machine: the IPU's modules, models that run there, and a lookalike of TensorFlow.

Keras runs on its JAX backend, whose traces :mod:`abele.frontends.jaxpr` reads.
"""
