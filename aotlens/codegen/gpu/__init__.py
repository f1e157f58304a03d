"""Code for a GPU, also where there is none: what a GPU is, what is generated for it, and what that costs."""
