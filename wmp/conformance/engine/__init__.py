"""Choose cases, play each against a testee, and judge the result."""
