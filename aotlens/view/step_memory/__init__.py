"""The memory of a training step in words and rows, for every front end."""
