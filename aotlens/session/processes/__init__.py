"""Processes that a script starts: those that spawn run under the engine, the others are counted."""
