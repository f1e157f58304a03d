"""The user's script: its text, its targets, their examples and the files that it reads."""
