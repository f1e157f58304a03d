"""The module text that runs: graphs, the autograd function that joins them, and the wrapper."""
