"""The transactions of a dispatcher. Each step reads, decides and writes in one transaction.

A step is a frozen value with a method ``run``. Between two steps a dispatcher may end, stop or lose
its connection; everything that others need is in the store.
"""
