"""What only a manager has: its store, and the log of jobs that no worker can do."""
