"""Scripted peers and Hypothesis strategies for the machines under test."""
