"""Recompile the Triton kernels of a log for a GPU, without running them."""
