"""Language models as plain PyTorch modules, one file per family."""
