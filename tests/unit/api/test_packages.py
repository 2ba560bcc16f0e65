"""What the service's process leaves out."""

import subprocess
import sys

import pytest

SCENE = """
import sys
from api.base.packages import leave_out_needless
{first}
import pyarrow
pyarrow.array(["a"])
print("pandas" in sys.modules, len(sys.meta_path))
"""


@pytest.mark.parametrize(
    ("first", "is_there"),
    [("", True), ("leave_out_needless()", False), ("leave_out_needless();" * 3, False)],
)
def test_arrays_do_not_load_pandas(first: str, is_there: bool) -> None:  # noqa: FBT001 - a case
    """The first case says that there is something to leave out."""
    scene = SCENE.format(first=first)
    done = subprocess.run([sys.executable, "-c", scene], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == str(is_there)


def test_diagnose_starts_without_the_inventory() -> None:
    """SQLAlchemy and Alembic are half of the time that it would take to start."""
    scene = "import api.diagnose.cli, sys; print({'sqlalchemy', 'alembic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", scene], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
