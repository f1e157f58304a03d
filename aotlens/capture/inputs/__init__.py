"""Flat inputs of the recorded function as fake tensors, synthetic bases, symbols or constants."""
