"""What the kit tests: adapters of machines of this library and of programs."""
