"""The version of PopTorch whose names these are; files of other versions are not read."""

__version__ = "3.4.0+abele"
VERSION = __version__
