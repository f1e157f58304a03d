"""Which forward values the backward keeps and which it computes again, and why."""
