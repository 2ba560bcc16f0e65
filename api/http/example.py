"""The service's configuration as a whole file, for `fabricscope init service`."""

from __future__ import annotations

from api.http.settings import ServiceSettings
from collector.contract.example import example_of


def service_example() -> str:
    return example_of(
        ServiceSettings,
        title="Settings of the service: fabricscope serve --config FILE. A line that begins with # "
        "and a name shows a default; remove the # to change it. The environment (FABRICSCOPE_NAME) "
        "and flags win over this file.",
    )
