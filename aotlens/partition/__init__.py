"""The partition stage: which forward values are saved for the backward, which are recomputed, and why."""
