"""Speed, compared side by side with `functorch.compile` of the installed torch, in one process."""
