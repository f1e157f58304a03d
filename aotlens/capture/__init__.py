"""From a callable and example arguments to a recording: one run on fake tensors."""
