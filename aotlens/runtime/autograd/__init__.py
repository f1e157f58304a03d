"""Module text of the `autograd.Function` that connects forward and backward."""
