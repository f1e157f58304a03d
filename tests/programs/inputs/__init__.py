"""Programs about inputs, views and mutations."""
