"""Traces and commands of aotlens that the server runs for the user, and the reports that they leave."""
