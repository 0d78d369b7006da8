"""The vertices of products and convolutions, with the closed forms of their cycles."""
