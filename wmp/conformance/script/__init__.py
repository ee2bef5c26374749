"""The parts of a case: its rules, its verdict and its transcript."""
