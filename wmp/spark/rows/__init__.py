"""Rows of DataFrames as jobs (``specs/rows.md``)."""
