"""Parts that several commands share: options, output, signals, waiting for workers."""
