"""The moves of a drawn conversation, for each role of the testee."""
