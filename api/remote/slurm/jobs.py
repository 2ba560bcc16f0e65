"""A job from the environment of Slurm's prolog and epilog, in the service's format. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from api.remote.slurm.hostlist import expand
from collector.contract.errors import ParseError
from collector.contract.identity import printable

TEXT_CHARS_MAX = 200
"""Of a name or partition."""
ATTRIBUTES = {
    "SLURM_JOB_PARTITION": "partition",
    "SLURM_JOB_ACCOUNT": "account",
    "SLURM_JOB_QOS": "qos",
    "SLURM_JOB_RESTART_COUNT": "restarts",
}
"""Variables that become attributes of the job; Slurm 22.05 sets all but the quality of service."""
NO_TEXT = "(null)"
"""What slurmctld writes into a variable where it has no text: of an account without accounting."""
FIELDS = {"SLURM_JOB_NAME": "name", "SLURM_JOB_USER": "user", "SLURM_CLUSTER_NAME": "cluster"}


def job_id(environment: Mapping[str, str]) -> str:
    """The job's id, as agents read it from its processes. Raises ParseError.

    >>> job_id({"SLURM_JOB_ID": "12", "SLURM_ARRAY_JOB_ID": "10", "SLURM_ARRAY_TASK_ID": "3"})
    '10_3'
    """
    array, task = (environment.get(f"SLURM_ARRAY_{name}_ID", "") for name in ("JOB", "TASK"))
    found = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID", "")
    if array.isdecimal() and task.isdecimal():
        found = f"{array}_{task}"
    if not found or not found.replace("_", "").isdecimal():
        raise ParseError("", "SLURM_JOB_ID is not set: this is no prolog or epilog of Slurm")
    return found


def hosts_of(environment: Mapping[str, str]) -> list[str]:
    """The job's hosts; of a node's own prolog all of the job's as well. Raises ParseError."""
    return expand(environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST", ""))


def texts(environment: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    found = {name: environment.get(variable, "") for variable, name in names.items()}
    return {
        name: printable(text)[:TEXT_CHARS_MAX]
        for name, text in found.items()
        if text not in {"", NO_TEXT}
    }


def job_said(environment: Mapping[str, str], now: dt.datetime) -> dict[str, Any]:
    """The body of `POST /v1/jobs`. Raises ParseError."""
    return {
        "id": job_id(environment),
        "scheduler": "slurm",
        "started_at": now.isoformat(),
        "hosts": hosts_of(environment),
        "attributes": texts(environment, ATTRIBUTES),
        **texts(environment, FIELDS),
    }
