"""Run user code in this process: the script, its targets and their capture.

Invariant: a front end's own process imports nothing from here.  Only `aotlens run` and the worker's children
do, because there the user asked for their code to run.  `policy_function` also serves a program that names a
policy's file itself.
"""
