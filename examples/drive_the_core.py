"""Manager and worker as state machines, driven by plain calls.

There are no sockets, threads or clocks. A message of one machine is passed to the other, and the
time is a number that jumps to the next deadline. A program with another transport would work in the
same way, and the simulations that test this library do.
"""

from collections import deque

from wmp import balance, codec
from wmp.actions import Notify, Resolve, Run, Send
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Connected, Drained, Finished, Received, Submitted, Ticked
from wmp.message import Kind, Outcome

manager = ManagerMachine(
    ManagerSettings(identity=b"the manager", epoch=1), balance.by_name("least_recently_used")
)
worker = WorkerMachine(WorkerSettings(identity=b"the worker", epoch=1, roles=("shout",)), links=1)

# The names of the connection at its two ends. A worker counts its links from 0; a manager uses the
# routing id of the connection.
LINK = {manager: b"connection 1", worker: 0}
NAME = {manager: "manager", worker: "worker "}

events = deque()
now = 0.0
results = {}


def perform(machine, actions):
    """Perform the actions of a machine, in order."""
    other = worker if machine is manager else manager
    for action in actions:
        match action:
            case Send(message=message):
                # Encode and decode, as a transport would.
                frames = codec.encode(message)
                size = sum(map(len, frames))
                print(f"{now:6.3f}  {NAME[machine]} ── {message.command.name}, {size} bytes")
                events.append((other, Received(LINK[other], codec.decode(frames))))
            case Run(lane, kind, ids=ids, payloads=payloads):
                print(f"{now:6.3f}  {NAME[machine]} runs {len(ids)} jobs of role {kind.role}")
                shouted = [bytes(payload).upper() for payload in payloads]
                outcomes = [Outcome.OK] * len(ids)
                events.append((machine, Finished(lane, ids, outcomes, shouted)))
            case Resolve(ids=ids, ends=ends, payloads=payloads):
                for id, end, payload in zip(ids, ends, payloads, strict=True):
                    results[id] = bytes(payload)
                    print(f"{now:6.3f}  job {id} ended {end.value}: {bytes(payload).decode()}")
            case Notify():
                pass
            case _:
                print(f"{now:6.3f}  {NAME[machine]} {action}")


def settle():
    """Deliver events until there are none."""
    while events:
        machine, event = events.popleft()
        perform(machine, machine.handle(event, now))


events.append((worker, Connected(0)))
settle()
payloads = [b"to be", b"or not", b"to be"]
events.append((manager, Submitted((1, 2, 3), payloads, Kind(role="shout"))))
settle()

# No event happens until a timer is due. Three timers pass here.
for _ in range(3):
    now = min(at for machine in (manager, worker) if (at := machine.deadline()) is not None)
    events += [(machine, Ticked()) for machine in (manager, worker)]
    settle()

events.append((worker, Drained()))
settle()
assert results == {1: b"TO BE", 2: b"OR NOT", 3: b"TO BE"}
