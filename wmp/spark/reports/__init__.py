"""The page of a report, once or again while journals grow."""
