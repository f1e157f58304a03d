"""The `aotlens` command: one module per subcommand, loaded only when it runs.

Invariant: stdout is data, everything else goes to stderr through `aotlens.cli.terminal`; exit codes are 0
success, 1 findings or a mismatch, 2 a mistake of the user's, 3 an internal error.
"""

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    from aotlens.cli.app import run_command  # so that importing `aotlens.cli` loads neither argparse nor rich

    return run_command(argv)
