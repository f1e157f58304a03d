"""Find where a difference from eager begins: the stage, the node, and the smallest program that differs."""
