"""Any program as a worker: the payload is its stdin, the result is its stdout.

The same without a line of Python, in two terminals::

    wmp worker --role sort -- sort -r
    wmp map --role sort FILE…
"""

import wmp
from wmp.runtime.node.command import CommandHandler

handlers = {
    "sort": CommandHandler(["sort", "-r"]),
    "fail": CommandHandler(["sh", "-c", "echo this goes wrong >&2; exit 3"]),
}

with wmp.Manager() as manager, wmp.Worker(*manager.endpoints, handlers=handlers, slots=2):
    sorted_lines = manager.submit("ant\ncat\nbee\n", role="sort").result(timeout=10)
    print(sorted_lines.decode(), end="")
    try:
        manager.submit(b"", role="fail").result(timeout=10)
    except wmp.JobFailed as error:
        print(f"failed: {error}")
