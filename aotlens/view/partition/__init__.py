"""What the partition decides, in words: saved values, the reasons, the user's selection, the frontier."""
