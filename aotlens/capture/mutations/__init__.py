"""Writes in the recorded function: in place, by custom operators, and to what storage a tensor has."""
