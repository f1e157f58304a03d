"""The functional joint program: forward and, where something needs a gradient, backward."""
