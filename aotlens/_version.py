"""The version, stated once: the package's metadata, `aotlens --version` and the reports read it here."""

__version__ = "0.1.0"
