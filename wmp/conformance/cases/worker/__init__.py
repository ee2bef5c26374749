"""The scripts for a worker under test."""
