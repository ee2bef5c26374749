"""The files of `deploy/`: each is read by the program for which it is, where this is installed."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import zmq.auth

import wmp
from tests.interop.programs.programs import ROOT
from tests.waiting import RUN
from wmp.cli.device import command as device
from wmp.cli.map.command import map_command
from wmp.cli.worker.command import worker

DEPLOY = ROOT / "deploy"

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
YAML = sorted((DEPLOY / "kubernetes").glob("*.yaml"))

COMMANDS = {"worker": worker, "map": map_command, "device": device}


def variables(text: str) -> set[str]:
    return set(re.findall(r"\bWMP_(?:WORKER|MAP|DEVICE)_[A-Z_]*[A-Z]", text))


def known_variables() -> set[str]:
    """Return the variables of all flags."""
    return {
        f"WMP_{name}_{option.lstrip('-')}".upper().replace("-", "_")
        for name, command in COMMANDS.items()
        for parameter in command.params
        for option in parameter.opts
        if parameter.param_type_name == "option" or parameter.name == "target"
    }


def objects() -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    return [
        document
        for path in YAML
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]


def test_every_file_is_listed():
    page = (DEPLOY / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"\]\((?!\.\.)([\w/@.-]+)\)", page))

    files = {path.relative_to(DEPLOY).as_posix() for path in DEPLOY.rglob("*") if path.is_file()}
    assert listed == files - {"README.md"}


def test_all_variables_are_those_of_flags():
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            names = variables(path.read_text(encoding="utf-8"))
            assert names <= known_variables(), path


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_wait_longer_than_their_workers(path: Path):
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(path.read_text(encoding="utf-8"))
    service = unit["Service"]

    if "worker" in path.name:
        assert shlex.split(service["ExecStart"])[1:] == ["worker"]
        (drain,) = re.findall(r"DRAIN_TIMEOUT=(\d+)", service["Environment"])
        assert int(service["TimeoutStopSec"]) == int(drain) + 30
    assert unit["Install"]["WantedBy"] == "multi-user.target"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_reads_the_units(path: Path, tmp_path: Path):
    # The program of the unit must exist for this check.
    text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", path.read_text("utf-8"), flags=re.M)
    copy = tmp_path / path.name
    copy.write_text(text, encoding="utf-8")

    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=RUN,
    )

    ours = [line for line in checked.stderr.splitlines() if path.stem.rstrip("@") in line]
    assert not ours


def test_workers_of_kubernetes_have_time_to_finish_their_jobs():
    (workers,) = [item for item in objects() if item["metadata"]["name"] == "wmp-workers"][:1]
    pod = workers["spec"]["template"]["spec"]
    env = {item["name"]: item.get("value") for item in pod["containers"][0]["env"]}

    drain = int(env["WMP_WORKER_DRAIN_TIMEOUT"])
    assert pod["terminationGracePeriodSeconds"] == drain + 30
    assert pod["enableServiceLinks"] is False


def test_the_parts_of_the_kubernetes_files_fit_together():
    documents = {
        (document["kind"], document["metadata"]["name"]): document for document in objects()
    }
    service = documents["Service", "wmp-manager"]["spec"]
    manager = documents["Deployment", "wmp-manager"]["spec"]
    workers = documents["Deployment", "wmp-workers"]["spec"]

    for document in (manager, workers, documents["PodDisruptionBudget", "wmp-workers"]["spec"]):
        labels = document["selector"]["matchLabels"]
        assert (
            labels
            == document.get("template", {"metadata": {"labels": labels}})["metadata"]["labels"]
        )
    assert service["selector"] == manager["selector"]["matchLabels"]
    (port,) = manager["template"]["spec"]["containers"][0]["ports"]
    assert service["ports"][0]["targetPort"] == port["name"]
    env = {
        document["name"]: document
        for document in workers["template"]["spec"]["containers"][0]["env"]
    }
    address = f"tcp://wmp-manager:{service['ports'][0]['port']}"
    assert env["WMP_WORKER_CONNECT"]["value"] == address


@pytest.mark.parametrize("name", ["manager", "worker"])
def test_the_keys_of_a_pod_can_be_loaded(name: str, tmp_path: Path):
    (pod,) = [
        document["spec"]["template"]["spec"]
        for document in objects()
        if document["kind"] == "Deployment" and name in document["metadata"]["name"]
    ]
    secret, keys = tmp_path / "secret", tmp_path / "keys"
    keys.mkdir()
    secret.mkdir()
    for document in ("manager", "worker"):
        zmq.auth.create_certificates(secret, document)
    # As in a volume of Kubernetes: links to files that a group can read.
    for path in list(secret.iterdir()):
        path.chmod(0o440)
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)
    with pytest.raises(wmp.ConfigError, match="can be read by other users"):
        wmp.Security.load(secret / f"{name}.key_secret")

    (copy,) = pod["initContainers"]
    *shell, line = copy["command"]
    line = line.replace("/secret/", f"{secret}/").replace("/keys/", f"{keys}/")
    subprocess.run([*shell, line], check=True, timeout=RUN)

    assert wmp.Security.load(keys / f"{name}.key_secret", allowed=keys).allowed


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_kubernetes_accepts_the_files(path: Path):
    validate = pytest.importorskip("kubernetes_validate")
    yaml = pytest.importorskip("yaml")
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        validate.validate(document, "1.30", strict=True)


SBATCH = {
    *("job-name", "nodes", "ntasks-per-node", "cpus-per-task", "time", "signal", "requeue"),
    *("output",),
}
"""Options of sbatch."""


def test_the_batch_file_of_slurm():
    path = DEPLOY / "slurm" / "workers.sbatch"
    text = path.read_text(encoding="utf-8")
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(\S+))?$", text, re.M))

    assert set(options) == SBATCH
    (drain,) = re.findall(r"DRAIN_TIMEOUT=(\d+)", text)
    assert options["signal"] == f"TERM@{int(drain) + 30}"
    checked = subprocess.run(["bash", "-n", path], capture_output=True, text=True, timeout=RUN)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_batch_file_starts_a_worker_with_its_settings(tmp_path: Path):
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nshift\necho "$@" "$WMP_WORKER_CONNECT" "$WMP_WORKER_SLOTS"\n')
    srun.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_CPUS_PER_TASK": "2"}
    start = ["bash", str(DEPLOY / "slurm" / "workers.sbatch")]

    process = subprocess.run(
        start, env={**env, "MANAGER": "tcp://a:1"}, capture_output=True, text=True, timeout=RUN
    )
    assert process.stdout == "wmp worker tcp://a:1 2\n"
    missing = subprocess.run(start, env=env, capture_output=True, text=True, timeout=RUN)
    assert "set MANAGER to the address of the manager" in missing.stderr


def test_the_container_starts_a_worker_that_receives_signals():
    text = (DEPLOY / "container" / "Containerfile").read_text(encoding="utf-8")
    steps = dict(re.findall(r"^(ENTRYPOINT|CMD|STOPSIGNAL|USER) (.*)$", text, re.M))

    # The form of a list starts no shell, which would not pass signals on.
    assert json.loads(steps["ENTRYPOINT"]) == ["wmp"]
    assert json.loads(steps["CMD"]) == ["worker"]
    assert steps["STOPSIGNAL"] == "SIGTERM"
    assert not steps["USER"].startswith("0")
