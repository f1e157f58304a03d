"""Exported modules beside eager: every program of the shared list, with either backend."""
