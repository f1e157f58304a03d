"""Real programs, each run in eager, under torch.compile and under aotlens, and the page that compares them.

Invariant: the programs do not depend on this package; measurements come from their exit code, their stdout
and an observer that Python loads with them.
"""
