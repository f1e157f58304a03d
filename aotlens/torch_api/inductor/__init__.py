"""Inductor: its settings, its code for one graph, and changes in force while it compiles."""
