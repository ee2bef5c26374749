"""The machines: sans-I/O, so that the same code runs in a driver, a simulation or a test.

- ``manager.Manager`` holds jobs, ``worker.Worker`` does them, ``device.Device`` stands between.
- Each has ``handle(event, now) -> list[Action]`` and ``deadline() -> float | None``, and
  nothing else changes its state.
- Lifecycles are literal tables that the code consults: ``jobs``, ``locks``, ``taken``.
- ``stream`` numbers what must arrive; ``timers`` holds what must be looked at later.
- No socket, thread, clock, random number or log in here: a test holds that.
"""
