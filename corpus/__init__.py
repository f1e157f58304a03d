"""Real programs, each run in eager, under torch.compile and under aotlens, and the page that compares them.

Invariant: the programs know nothing of this package; what is measured comes from their exit code, their
stdout and an observer that Python loads beside them.
"""
