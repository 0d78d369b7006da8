"""Language models of transformers as they are: their caches on the device, and text made from them."""
