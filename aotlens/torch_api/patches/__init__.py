"""What we change in torch: one table of replacements, and how they are applied and reverted."""
