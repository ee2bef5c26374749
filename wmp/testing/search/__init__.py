"""Search the states of small worlds, and shorten a counterexample."""
