"""Compile results on disk: another process finds them before the stages that produce them run.

Invariant: a result is found only for the question that it answered: the captured graph in full, what is
known of its inputs, every setting that a stage reads, and the versions.  What a text cannot tell in full is
not kept, and the reason is told.
"""
