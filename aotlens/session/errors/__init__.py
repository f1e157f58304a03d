"""Errors of the user's script and of the engine, as failures that name the user's line."""
