"""Autograd in the recorded function: hooks, checkpoints, custom functions, saved tensors, `.grad`."""
