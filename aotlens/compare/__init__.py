"""The difference of two reports: lines and nodes matched, values and kernels compared, in words."""
