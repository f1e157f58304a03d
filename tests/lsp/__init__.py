"""Tests of the language server: a real process, driven over real pipes."""
