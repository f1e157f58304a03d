"""The engine's program form: nodes, slots, programs, and their rendering as Python."""
