"""The engine's one program form: nodes, slots, programs, and their rendering."""
