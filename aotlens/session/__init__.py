"""What happens inside the process that runs user code: the script, its targets, their capture.

Invariant: nothing here is imported by a front end's own process; `aotlens run` and the worker's children are
the only ones, because there the user asked for their code to run.  `chooser.py` also serves a program that
names a policy's file itself.
"""
