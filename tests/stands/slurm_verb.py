"""`fabricscope slurm` in this process, between a service with a policy and whatever `sinfo` is."""

from typing import Any

import pytest

from collector.cli import main
from tests.stands.acting import Stage


class SlurmVerb:
    """A service and the verb; what Slurm is follows from PATH and SLURM_CONF."""

    def __init__(
        self,
        stage: Stage,
        capsys: pytest.CaptureFixture[str],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        self.stage = stage
        self._capsys = capsys
        self._log = caplog

    @property
    def url(self) -> str:
        return str(self.stage.client.base_url)

    def run(self, *words: str, status: int = 0, service: str = "") -> str:
        """A verb's stdout, stderr and log."""
        self._log.clear()
        assert main(["slurm", *words, "--service", service or self.url]) == status
        said = self._capsys.readouterr()
        return said.out + said.err + "".join(each.message for each in self._log.records)

    def follow(self, status: int = 0, **how: str) -> str:
        """One look of the executor, which acts."""
        return self.run("follow", "--once", "--apply", status=status, **how)

    def hold(self, host: str, reason: str = "a cable") -> str:
        """An operator's hold; the action's id."""
        body = {"state": "draining", "reason": reason, "by": "ada"}
        answer = self.stage.client.put(f"/v1/hosts/{host}/hold", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    def let_go(self, host: str) -> None:
        answer = self.stage.client.delete(f"/v1/hosts/{host}/hold", params={"by": "ada"})
        assert answer.status_code == 200, answer.text

    def action(self, number: str) -> Any:  # noqa: ANN401 - JSON
        return self.stage.get(f"/v1/actions/{number}")
