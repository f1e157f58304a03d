"""Programs about gradients: what autograd records, and what the backward gets and returns."""
