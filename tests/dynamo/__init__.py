"""Small programs, one per kind of graph break, recompilation and constant, with what is reported."""
