"""What is asked of every program of the shared list, a file for each kind of question."""
