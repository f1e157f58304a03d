"""Programs as code: their own Python text, or what a backend makes of them."""
