"""The codegen stage: programs as code, either their own Python text or what a backend compiles."""
