"""Cost estimates for GPU kernels: memory traffic, FLOPs, occupancy, roofline time and missed fusions."""
