"""How programs reach the engine: Dynamo's backend registry, and `aotlens.compile`."""
