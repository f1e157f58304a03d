"""Record a callable: one run on fake tensors, from example arguments to a graph of operators."""
