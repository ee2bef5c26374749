"""Reading journals: the source of Spark, lines, byte ranges, tables."""
