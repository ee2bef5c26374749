"""The parts that the whole runtime uses: checks of arguments, threads, counters, the journal."""
