"""`aotlens check`: which files have targets with examples, what tracing them finds, and how it is told.

Invariant: nothing here imports torch; traces run in the worker's children.
"""
