"""Random programs: views, writes, grad modes, shared inputs, custom functions, modules; beside eager.

A program is drawn as a `Recipe` (a hypothesis strategy, so that what fails shrinks), written as Python text
by trying each statement in eager, and judged by the comparison that all programs of the tests go through.
`python -m tests.random_programs --count 10000 --seed 0` runs many, and keeps those that fail as files.
"""
