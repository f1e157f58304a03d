"""Dynamo's work while a script runs: graph breaks, recompilations, specialisations, guards and time.

`listener.py` receives facts through `aotlens.torch_api`, one module per kind of fact phrases them in the
user's terms, and `records.py` builds the report's records.
"""
