"""Emulate a GPU for code generation on a machine without one: device queries, drivers and device guards."""
