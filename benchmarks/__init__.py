"""How fast it is, beside what else there is: ``python -m benchmarks``.

Run it from the top of the repository; the README here says how to read the figures.
"""
