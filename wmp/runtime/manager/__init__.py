"""The parts of a manager alone: its store, and the log of jobs that no worker can do."""
