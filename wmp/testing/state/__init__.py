"""The state of a machine as a value: copied, compared, counted. For searches and tests."""
