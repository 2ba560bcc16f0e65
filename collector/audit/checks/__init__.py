"""The checks: one file each, found by listing this folder.

A check is a pure function of a host's facts. It names the settings that it looks at: what could
not be read of those is what it may have missed.

To add one: write `collector/audit/checks/<what_is_wrong>.py` with ``CHECK = Check(...)``, facts on
which it reports and facts on which it must not to `tests/unit/collector/test_audit_checks.py`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache

import msgspec

from collector.audit.facts import Facts
from collector.audit.finding import Finding
from collector.audit.settings import JOB_SETTINGS, NCCL_PREFIX
from collector.contract.errors import ContractError


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check. A setting that ends in a star stands for all that begin so."""

    name: str
    reads: frozenset[str]
    judge: Callable[[Facts], Iterator[Finding]]

    @property
    def is_about_jobs(self) -> bool:
        return any(each.startswith(NCCL_PREFIX) or each in JOB_SETTINGS for each in self.reads)

    def sees(self, setting: str) -> bool:
        if setting in self.reads:
            return True
        return any(each.endswith("*") and setting.startswith(each[:-1]) for each in self.reads)


@cache
def discover() -> dict[str, Check]:
    found: dict[str, Check] = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda each: each.name):
        module = importlib.import_module(f"{__name__}.{info.name}")
        check = getattr(module, "CHECK", None)
        if not isinstance(check, Check) or check.name != info.name:
            raise ContractError(f"{module.__name__} must export CHECK with name = {info.name!r}")
        found[check.name] = check
    return found
