"""Lines of journals to rows and violations, by folds in Python."""
