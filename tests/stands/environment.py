"""What programs get that tests start; light, because some of them import it themselves."""

import os


def clean_environment() -> dict[str, str]:
    """This process' environment without settings of ours."""
    return {name: value for name, value in os.environ.items() if "FABRICSCOPE_" not in name}
