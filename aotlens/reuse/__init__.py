"""Compiled results, kept on disk and found again by another process before the stages that make them run.

Invariant: a result is found only for the question that it answered: the captured graph in full, what is
known of its inputs, every setting that a stage reads, and the versions.  What a text cannot tell in full is
not kept, and the reason is told.
"""
