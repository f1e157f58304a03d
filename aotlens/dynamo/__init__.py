"""What Dynamo does while a script runs: graph breaks, recompilations, constants, guards and time.

`listener.py` hears of each fact through `aotlens.torch_api`, one module per kind of fact puts it into the
user's words, and `build.py` makes the report's records of it.
"""
