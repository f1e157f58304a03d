"""Run graphs that Dynamo captured in eager, where the engine cannot compile them."""
