"""Commands that start the language server, for its own tests and for those of the editors."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STAND_IN = ("-m", "tests.lsp.stand_in")
"""With a worker that answers from a sample, without torch."""
REAL = ("-m", "aotlens", "lsp")
