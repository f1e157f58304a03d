"""Graphs and tensors rebuilt from the text that torch logs of them."""
