"""What people look at: Grafana dashboards and the built-in page."""

from importlib.resources import files
from pathlib import Path
from typing import Final

PAGE: Final = Path(str(files(__name__).joinpath("page")))
"""Where `make page` puts the built-in page and the empty report, in a checkout and in a wheel."""
