"""The speed of wmp beside other systems: ``python -m benchmarks``.

Run it from the top of the repository. README.md here explains the figures.
"""
