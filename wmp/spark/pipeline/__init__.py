"""The run of the pipeline: engines, the account of what was read, and publishing."""
