"""Programs about single kinds of operators, and about tensor subclasses."""
