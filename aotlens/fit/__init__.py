"""The memory of a whole step of a script: what is allocated, by which line, and until when."""
