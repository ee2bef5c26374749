"""The same jobs with wmp. A worker does them: wmp worker work --functions (see work.py)."""

import os

import work

import wmp

with wmp.Manager(os.environ["MANAGER"], codec="cbor") as manager:
    executor = wmp.Executor(manager, retry=wmp.Retry(times=3))
    job = executor.submit(work.count_words, "to be or not to be")
    print(job.result())
