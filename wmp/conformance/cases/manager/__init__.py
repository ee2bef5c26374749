"""The scripts for a manager under test."""
