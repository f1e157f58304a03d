"""What `functorch.compile` hands on of torch's own, so that one import serves: its settings and tools."""

from aotlens.torch_api.aot import functorch_names

config, minifier, pythonkey_decompose = functorch_names()
