"""The subcommands of `aotlens`: one module each, with `add_arguments(parser)` and `run(arguments) -> int`."""
