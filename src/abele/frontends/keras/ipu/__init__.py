"""Modules of IPUs under the names that Keras and TensorFlow programs know."""
