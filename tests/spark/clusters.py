"""A standalone cluster of pip's PySpark on this machine: a master and two workers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

__all__ = ["CONFS", "GPUS", "executors", "standalone"]

HOME = Path(pyspark.__file__).parent
OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CORES = 3
GPUS = 3
"""Each worker of the cluster believes that it has so many GPUs. Each task gets one."""
CONFS = {
    "spark.driver.extraJavaOptions": OPTIONS,
    "spark.executor.extraJavaOptions": OPTIONS,
    "spark.executor.memory": "512m",
    "spark.executor.cores": str(CORES),
    "spark.executor.resource.gpu.amount": str(GPUS),
    "spark.task.resource.gpu.amount": "1",
    "spark.driver.memory": "1g",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def standalone(folder: Path, executors: int = 2):
    """Yield the URL of a master with so many workers, whose files are below ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "gpus.sh"
    addresses = ", ".join(f'"{n}"' for n in range(GPUS))
    script.write_text(f'#!/bin/sh\necho \'{{"name": "gpu", "addresses": [{addresses}]}}\'\n')
    script.chmod(0o755)
    env = os.environ | {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": OPTIONS,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_OPTS": f"-Dspark.worker.resource.gpu.amount={GPUS} "
        f"-Dspark.worker.resource.gpu.discoveryScript={script}",
    }
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    command = [str(HOME / "bin/spark-class")]
    with ExitStack() as stack:

        def begin(name: str, *arguments: str) -> None:
            log = stack.enter_context(open(folder / f"{name}.log", "wb"))
            process = subprocess.Popen(
                [*command, *arguments], env=env, stdout=log, stderr=log, cwd=folder
            )
            stack.callback(end, process)

        begin(
            "master", "org.apache.spark.deploy.master.Master",
            "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0",
        )  # fmt: skip
        wait_for(lambda: listens(port), "the master")
        for number in range(executors):
            begin(
                f"worker{number}", "org.apache.spark.deploy.worker.Worker",
                "--host", "127.0.0.1", "--cores", str(CORES), "--memory", "1g",
                "--webui-port", "0", "--work-dir", str(folder / f"work{number}"), url,
            )  # fmt: skip
        for number in range(executors):
            log = folder / f"worker{number}.log"
            wait_for(
                lambda log=log: b"Successfully registered" in log.read_bytes(), f"worker {number}"
            )
        yield url


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(true, what: str, seconds: float = 180.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} did not come within {seconds} s")
        time.sleep(0.05)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()


def executors(application: str) -> list[int]:
    """Return the processes of the executors of an application."""
    addresses = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                command = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            # The launcher has the name of the application too, but not this class as an argument.
            if b"CoarseGrainedExecutorBackend\0" in command and application.encode() in command:
                addresses.append(int(entry))
    return sorted(addresses)
