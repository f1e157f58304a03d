"""The `aotlens` command: one module per subcommand, each loaded only when it is the one that runs.

Invariant: stdout is data, everything else goes to stderr through `aotlens.cli.terminal`; exit codes are 0
fine, 1 findings or a mismatch, 2 the user's mistake, 3 our fault.
"""

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    from aotlens.cli.app import run_command  # importing `aotlens.cli` alone stays free of argparse and rich

    return run_command(argv)
