"""Torch's own operator and module databases: each sample as eager, forward and backward.

`python -m tests.operators` runs all of it over several processes and writes the table of what does not pass.
"""
