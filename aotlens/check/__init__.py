"""`aotlens check`: find the files that have targets with examples, trace them, and collect the findings.

Invariant: nothing here imports torch; traces run in the worker's children.
"""
