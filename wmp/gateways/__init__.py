"""Other protocols than WMP: clients, servers and workers that speak them.

- :mod:`wmp.gateways.pirates`: the Lazy, Simple and Paranoid Pirate patterns (specs/pirates.md).
- :mod:`wmp.gateways.ping_pong`: the ping-pong protocol (specs/ping-pong.md).
- :mod:`wmp.gateways.round_robin`: round robin on the LMQ layer (specs/round-robin.md).
- :mod:`wmp.gateways.majordomo`: Majordomo 0.1 (specs/majordomo.md).
- :mod:`wmp.gateways.titanic`: Titanic, stored requests to a Majordomo broker.
- :mod:`wmp.gateways.remember`: handlers that remember their replies.
- :mod:`wmp.gateways.gateway`: a gateway in the place of their queues and brokers.
- :mod:`wmp.gateways.aio`: the same names for asyncio.
"""
