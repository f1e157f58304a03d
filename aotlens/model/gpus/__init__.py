"""The GPUs for which code can be generated, as their vendor specifies them."""
