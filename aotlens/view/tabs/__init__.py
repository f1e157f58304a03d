"""What each pane says, as plain values: records in, rows and lines out.  No widget is touched here."""
