"""The demo's programs: what is said when one does not come up."""

from pathlib import Path
from typing import cast

import pytest

from api.remote.client import Away, Client
from collector.contract.errors import FabricscopeError
from simulator.demo import programs as demo
from simulator.demo.programs import SERVICE, Programs, Stop, await_ready


class Unreached:
    """A service that does not listen yet."""

    def read(self, path: str) -> None:
        raise Away(f"cannot reach {path}")


def test_a_service_that_does_not_come_up_has_its_last_words_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "READY_SECONDS", 0)
    (tmp_path / f"{SERVICE}.log").write_text("first\nstore: applied migration 0001\n")
    client = cast("Client", Unreached())
    with pytest.raises(FabricscopeError, match=r"busy .* Its last words: store: applied migration"):
        await_ready(client, Programs(tmp_path), Stop())
