"""The functional joint program: the forward and, if anything needs a gradient, the backward."""
