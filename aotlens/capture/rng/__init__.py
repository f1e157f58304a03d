"""Random operators and RNG state: generators, seeding, operators as functions of a philox seed and offset."""
