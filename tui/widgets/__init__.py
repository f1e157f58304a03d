"""Widgets that draw only the visible lines, so that 50,000 nodes cost what 50 cost."""
