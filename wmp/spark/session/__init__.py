"""Start Spark: Java, the session, Arrow."""
