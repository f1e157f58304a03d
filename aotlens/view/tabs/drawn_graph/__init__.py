"""A graph as boxes, layers and edges, for the terminal app and the HTML page."""
