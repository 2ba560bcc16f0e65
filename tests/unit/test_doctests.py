"""Examples in docstrings are tests."""

import doctest
import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest

import alerts
import api
import collector
import dashboards
import simulator

PACKAGES = (alerts, api, collector, dashboards, simulator)
NOT_IMPORTED = ("api.data.inventory.migrations.",)
"""Alembic loads these by path and hands them what they need."""


def modules() -> list[str]:
    return [
        info.name
        for package in PACKAGES
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not info.name.startswith(NOT_IMPORTED)
    ]


def examples(module: ModuleType) -> list[doctest.DocTest]:
    """Found only where there are any: to look for them reads and parses the whole module."""
    if ">>>" not in inspect.getsource(module):
        return []
    return [test for test in doctest.DocTestFinder().find(module) if test.examples]


@pytest.mark.parametrize("name", modules())
def test_examples_are_true(name: str) -> None:
    runner = doctest.DocTestRunner()
    for test in examples(importlib.import_module(name)):
        runner.run(test)
    assert runner.failures == 0


def test_there_are_examples() -> None:
    assert len(examples(importlib.import_module("collector.contract.identity"))) > 1
