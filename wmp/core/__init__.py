"""The machines: sans-I/O, so that the same code runs in a driver, a simulation or a test.

- ``manager.Manager`` holds jobs, ``worker.Worker`` does them, ``device.Device`` stands between.
- Each has ``handle(event, now) -> list[Action]`` and ``deadline() -> float | None``. Only
``handle`` changes its state.
- Lifecycles are literal tables that the code consults: ``jobs``, ``locks``, ``taken``.
- ``stream`` numbers the messages that must arrive; ``timers`` holds the times of later checks.
- No module uses a socket, thread, clock, random number or log; a test checks that.
"""
