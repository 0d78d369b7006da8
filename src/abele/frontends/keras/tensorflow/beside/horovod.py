"""``horovod``: one process."""

from abele.frontends.keras.ipu import distributed

tensorflow = distributed
__all__ = ["tensorflow"]
