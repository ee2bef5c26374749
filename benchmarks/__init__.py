"""The speed of wmp beside other systems: ``python -m benchmarks``.

Run it from the top of the repository; the README here says how to read the figures.
"""
