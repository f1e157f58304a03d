"""Source locations of recorded nodes: user frames, Dynamo's node locations, and local variable names."""
