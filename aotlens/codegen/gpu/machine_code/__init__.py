"""Triton sources as cubins, and what cubins say: resources per kernel and SASS."""
