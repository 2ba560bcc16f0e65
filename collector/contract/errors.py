"""Every error that Fabricscope raises on purpose.

    FabricscopeError
    ├── SettingsError            a setting is unknown, mistyped or contradicts another
    ├── CatalogError             a catalog file breaks a rule of the catalog
    ├── ContractError            two parts of Fabricscope disagree
    │   ├── IdentityError        a name or label that cannot be an identity
    │   ├── WireError            bytes that are not a batch
    │   │   ├── WireTooLarge     bytes over a named limit
    │   │   └── WireVersionError a batch of a version that this program does not read
    │   └── CaseError            bytes that are not a case, or a case that does not hold together
    │       └── CaseTooLarge     a case over a named limit
    ├── ParseError               a file of another program is not what it should be
    ├── HostError                the machine did not give what a source asked for (carries a reason)
    ├── SpoolError               the agent's spool cannot be used: in use, or not a writable folder
    ├── RuleFileError            a rule file is not what it should be (carries all its problems)
    ├── RuleError                a rule cannot be evaluated: what was found has no meaning
    │   └── RuleLimitError       it makes more alerts than its group allows
    ├── StoreError               the telemetry store refused or failed
    └── InventoryError           the inventory refused or failed

Messages name the thing, the value seen and what to do about it.
"""

from __future__ import annotations

from collections.abc import Sequence

from collector.contract.reason import UnreadReason


class FabricscopeError(Exception):
    """The root: catch this to catch everything that we raise on purpose."""


class SettingsError(FabricscopeError):
    """A setting is unknown, mistyped or contradicts another."""


class CatalogError(FabricscopeError):
    """A catalog file breaks a rule of the catalog."""


class ContractError(FabricscopeError):
    """Two parts of Fabricscope disagree about the shared vocabulary."""


class IdentityError(ContractError):
    """A name or label that cannot be part of an identity."""


class WireError(ContractError):
    """Bytes that are not a batch."""


class WireTooLarge(WireError):  # noqa: N818 - reads as the statement it is
    """Bytes over a named limit; refused before they are unpacked."""


class WireVersionError(WireError):
    """A batch of a version that this program does not read."""


class CaseError(ContractError):
    """Bytes that are not a case, or a case that does not hold together."""


class CaseTooLarge(CaseError):  # noqa: N818 - reads as the statement it is
    """A case over a named limit."""


class ParseError(FabricscopeError):
    """A file of another program, or a part of it, is not what it should be.

    ``where`` names the part (``line 17``, ``byte 4096``; empty for the whole), ``detail`` what
    was seen there and what should have been.
    """

    def __init__(self, where: str, detail: str) -> None:
        super().__init__(f"{where}: {detail}" if where else detail)
        self.where = where
        self.detail = detail


class HostError(FabricscopeError):
    """The machine did not give what a source asked for."""

    def __init__(self, reason: UnreadReason, path: str, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.reason = reason
        self.path = path
        self.detail = detail


class SpoolError(FabricscopeError):
    """The agent's spool cannot be used: another agent has it, or it is not a writable folder."""


class RuleFileError(FabricscopeError):
    """A rule file is not what it should be.

    ``file`` and ``line`` (from 1; 0: not known) locate the first problem, ``detail`` describes it.
    ``problems`` has all of them in order, because a person mends a file in one go; ``left_out``
    counts those beyond the bound of the list.
    """

    def __init__(self, file: str, problems: Sequence[tuple[int, str]], left_out: int = 0) -> None:
        self.file = file
        self.problems = tuple(problems)
        self.left_out = left_out
        self.line, self.detail = self.problems[0]
        where = f"{file}:{self.line}" if self.line else file
        more = len(self.problems) - 1 + left_out
        super().__init__(f"{where}: {self.detail}" + (f" (and {more} more)" if more else ""))


class RuleError(FabricscopeError):
    """A rule cannot be evaluated: what was found has no meaning. Its alerts stay as they are."""


class RuleLimitError(RuleError):
    """A rule makes more alerts than its group allows. All of its alerts are to be forgotten."""


class StoreError(FabricscopeError):
    """The telemetry store refused or failed."""


class InventoryError(FabricscopeError):
    """The inventory refused or failed."""
