"""Programs about callables, modules, and the Python state that they read and change."""
