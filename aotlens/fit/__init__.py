"""Predict the memory of a whole step of a script: what is allocated, by which line, and for how long."""
