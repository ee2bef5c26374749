"""Testees: adapters of machines of this library and of programs."""
