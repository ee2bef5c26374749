"""The worker machine: offers its capacity, runs jobs and answers for each."""
