"""Two services share evaluation; the one that judges is killed while a fault begins."""

from pathlib import Path

import pytest

from tests.chaos.evaluators import play

pytestmark = pytest.mark.peer("initdb", "postgres")


def test_judge_is_killed_and_no_page_is_lost_or_doubled(tmp_path: Path) -> None:
    history = play(tmp_path, kills=1, episodes=0, every_s=5.0)
    assert history.kills == 1
    assert history.firing >= 1
    assert history.tally.stored >= history.tally.acknowledged > 0
