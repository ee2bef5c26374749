"""Clients, servers and workers of other protocols, for asyncio.

:mod:`wmp.gateways.pirates` and :mod:`wmp.gateways.ping_pong` wrap the classes of
:mod:`wmp.gateways.aio.pirates` and :mod:`wmp.gateways.aio.ping_pong`.
"""
