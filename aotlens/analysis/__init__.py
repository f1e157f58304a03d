"""Analysis: which inputs are mutated, which outputs are aliases, and the source location of each fact."""
