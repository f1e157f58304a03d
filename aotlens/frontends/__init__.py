"""The entry points of the engine: the Dynamo backend, `aotlens.compile`, and `functorch.compile`'s
functions."""
