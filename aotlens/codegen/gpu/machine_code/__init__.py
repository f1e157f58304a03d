"""Compile Triton sources to cubins; read resources per kernel and SASS from cubins."""
