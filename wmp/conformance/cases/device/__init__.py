"""The scripts for a device under test."""
