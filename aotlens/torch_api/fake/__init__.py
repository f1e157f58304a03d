"""Fake tensors with their mode and kernels, a GPU that is not there, and a fake process group."""
