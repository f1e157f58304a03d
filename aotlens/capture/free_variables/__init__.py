"""What the function reads and changes outside its arguments: globals, closures, attributes, side effects."""
