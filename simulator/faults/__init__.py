"""Faults, one file each; a new fault needs only a file in this folder.

A file holds a subclass of `simulator.faults.model.Fault` (or of one of the bases in
`simulator.faults.places`, which choose a host, a GPU, a NIC or a cable and name it) and ``FAULT =
ThatClass()``. `docs/how-to/add-a-fault.md` shows one.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from pathlib import Path
from types import ModuleType

from collector.contract.errors import ContractError
from simulator.faults.model import Fault

SUPPORT = frozenset({"model", "places"})
"""Modules of this folder that are no faults."""
BEFORE_JOBS = frozenset({"grey_link"})
"""Faults that strike where no job runs. Nothing but probes shows them, which are off unless asked
for: scoreboards, which score what costs a job, do not draw these."""


def discover(extra: Path | None = None) -> dict[str, Fault]:
    """Every fault of this folder and of ``extra``, by name. Raises ContractError with the file.

    Without those before jobs: `before_jobs` has them.
    """
    found = {
        module_info.name: _own(module_info.name)
        for module_info in pkgutil.iter_modules(__path__)
        if module_info.name not in SUPPORT | BEFORE_JOBS
    }
    for file in sorted(extra.glob("*.py")) if extra else ():
        if file.stem.startswith("_"):
            continue
        if file.stem in found:
            raise ContractError(f"{file}: there is a fault {file.stem} already; rename the file")
        found[file.stem] = _fault_of(_load(file), file.stem)
    return dict(sorted(found.items()))


def before_jobs() -> dict[str, Fault]:
    """The faults of BEFORE_JOBS, by name."""
    return {name: _own(name) for name in sorted(BEFORE_JOBS)}


def _own(name: str) -> Fault:
    return _fault_of(importlib.import_module(f"{__name__}.{name}"), name)


def _load(file: Path) -> ModuleType:
    """Run a file that is in no package; any error in it becomes a ContractError with its name."""
    spec = importlib.util.spec_from_file_location(f"extra_faults.{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ContractError(f"{file}: Python cannot load it as a module")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ContractError(f"{file}: {type(error).__name__}: {error}") from error
    return module


def _fault_of(module: ModuleType, name: str) -> Fault:
    fault = getattr(module, "FAULT", None)
    if not isinstance(fault, Fault) or getattr(fault, "name", None) != name:
        raise ContractError(
            f"{module.__file__}: must export FAULT, an instance of a Fault with name = {name!r}"
        )
    missing = [word for word in ("title", "causes") if not hasattr(fault, word)]
    if missing:
        raise ContractError(f"{module.__file__}: the fault lacks {' and '.join(missing)}")
    return fault
