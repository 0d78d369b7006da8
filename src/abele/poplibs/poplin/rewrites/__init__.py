"""Ways to recast a convolution as another contraction that may be cheaper."""
