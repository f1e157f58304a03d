"""Higher-order operators (`cond`, `scan`, `while_loop`, marked regions, Triton kernels) and subgraphs."""
