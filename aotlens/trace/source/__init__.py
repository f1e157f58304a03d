"""Logged source lines, found again in the workspace that is open now."""
