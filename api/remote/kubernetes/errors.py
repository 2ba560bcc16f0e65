"""What can go wrong with a Kubernetes API server, by name."""

from __future__ import annotations

from api.remote.executor import SchedulerError


class ClusterError(SchedulerError):
    """The API server did not carry out a request."""


class ClusterAway(ClusterError):  # noqa: N818 - reads as the statement it is
    """It cannot be reached, or is too busy (`Retry-After`): it may be back soon."""


class ClusterRefused(ClusterError):  # noqa: N818 - the same
    """It does not know us (401), or we may not (403): an operator has to do something."""


class ObjectMissing(ClusterError):  # noqa: N818 - the same
    """There is no such object (404)."""


class ObjectChanged(ClusterError):  # noqa: N818 - the same
    """Another client changed it meanwhile (409): look again."""


class WatchGone(ClusterError):  # noqa: N818 - the same
    """What was known is too old to go on from (410): list again."""


class ClusterOdd(ClusterError):  # noqa: N818 - the same
    """An answer that is none of Kubernetes' API."""
