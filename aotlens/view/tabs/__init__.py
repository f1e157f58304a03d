"""The content of each pane as plain values: records in, rows and lines out. No widgets.

A module here makes the rows of one tab; words and counts that other front ends share are in `aotlens.view`.
"""
