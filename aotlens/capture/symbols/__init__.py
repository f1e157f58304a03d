"""Symbolic sizes and numbers in a recording: as graph nodes, inputs, guards and known constants."""
