"""The machines. They do no I/O, so that the same code runs in a driver, a simulation or a test.

- ``manager.machine.ManagerMachine`` holds jobs. ``worker.machine.WorkerMachine`` does jobs.
  ``device.DeviceMachine`` stands between managers and workers.
- Each machine has ``handle(event, now) -> list[Action]`` and ``deadline() -> float | None``. Only
  ``handle`` changes the state of a machine.
- Lifecycles are literal tables that the code consults: ``manager.job_lifecycle``,
  ``worker.execution_lifecycle`` and ``worker.locks``.
- ``protocol.outbound`` numbers the messages that must arrive. ``protocol.timers`` holds the times
  of later checks.
- No module uses a socket, thread, clock, random number or log. A test checks this.
"""
