"""What the routes about configurations share: their numbers, and finding one."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from api.base.errors import Problem
from api.data.inventory.rollout_model import Configuration
from api.http.context import Context
from collector.contract.rollout import VERSION_MAX

VersionNumber = Annotated[int, Path(ge=1, le=VERSION_MAX, description="Of the configuration.")]


def find_configuration(parts: Context, version: int) -> Configuration:
    """Problem 404 if there is none with this number."""
    found = parts.inventory.rollouts.get(version)
    if found is None:
        raise Problem(404, "no such configuration", f"there is no configuration {version}")
    return found
