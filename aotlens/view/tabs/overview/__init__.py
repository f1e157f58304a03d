"""The Overview: what was compiled, what it costs, and what to fix."""
