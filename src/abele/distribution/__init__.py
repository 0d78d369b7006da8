"""Distribution: programs that run and train networks on IPUs, as stages of pipelines, replicas and parts of layers."""

from abele.distribution.program import NetworkProgram, inference_program, lower_network, training_program

__all__ = ["NetworkProgram", "inference_program", "lower_network", "training_program"]
