"""The tabs: each shows one part of a target, and the source of each row."""
