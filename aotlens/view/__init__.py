"""Counts, totals and words of a report, shared by all front ends. Standard library only.

Invariant: text, HTML, the terminal app and the editor take each number and each sentence from here, so that a
fact reads the same everywhere.
"""
