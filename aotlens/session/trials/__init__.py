"""Runs of edited copies of a script, compared with the script in eager."""
