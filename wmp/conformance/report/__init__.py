"""The results of a run as a page, a terminal table, JUnit XML and diagrams."""
