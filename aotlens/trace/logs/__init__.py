"""Log files as torch writes them: found, read, followed while they grow, and recorded."""
