"""Which inputs are mutated and which outputs are aliases, with the sites of each fact."""
