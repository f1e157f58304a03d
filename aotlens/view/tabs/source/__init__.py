"""The source beside the tabs: its text, its colours, its gutter, and the rows that belong to a line."""
