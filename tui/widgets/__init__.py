"""Widgets that draw only the visible lines, so that 50,000 nodes cost no more than 50."""
