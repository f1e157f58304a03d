"""Code generation for a GPU, also on machines without one: GPU targets, generated kernels, and their
costs."""
