"""What Dynamo reports while a script runs: graph breaks, skipped functions and errors."""
