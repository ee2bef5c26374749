"""What a case consists of: its rules, its verdict and its transcript."""
