"""Views and copies that change how a tensor is laid out: padding, regrouping, tensors for the host."""
