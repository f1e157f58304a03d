"""The text of open documents: positions in it, its lines after edits, its syntax, its targets."""
