"""What all tables share: rows, the order and the widths of columns, search."""
