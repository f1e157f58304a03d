"""Compute the largest batch size or sequence length whose step fits a GPU.  Stdlib only."""
