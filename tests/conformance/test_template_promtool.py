"""Our templates against Prometheus' own: what we expand, promtool must expect, and refuse alike."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from alerts.rulebook.template import TemplateData, TemplateError, check, expand_or_say
from tests.oracles.template_cases import (
    ACCEPTED,
    ASKED,
    EXTERNAL,
    EXTERNAL_URL,
    REFUSED,
    STORED,
    SUBJECT,
)
from tests.oracles.template_random import Maker
from tests.tools import peers
from tests.tools.cut import CUT

pytestmark = pytest.mark.peer("promtool")

RANDOM_TEMPLATES, TEMPLATE_PARTS = 300, 5
PROMTOOL_SECONDS = 120
"""For a machine that does ten other things."""


def promtool(*arguments: str, folder: Path) -> str:
    """What it prints."""
    done = subprocess.run(
        [str(peers.find("promtool")), *arguments],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=PROMTOOL_SECONDS,
    )
    return done.stdout + done.stderr


def write(path: Path, content: object) -> None:
    # JSON is YAML, in which nothing is anything but what it looks like.
    path.write_text(json.dumps(content, ensure_ascii=False), "utf-8")


def series(name: str, labels: Mapping[str, str], value: float) -> dict[str, str]:
    selector = ", ".join(
        f"{label}={json.dumps(text, ensure_ascii=False)}" for label, text in labels.items()
    )
    return {"series": f"{name}{{{selector}}}", "values": f"{value}"}


def our_expansion(alert: str, value: str, text: str) -> str:
    data = TemplateData(
        labels=SUBJECT,
        value=float(value),
        external_labels=EXTERNAL,
        external_url=EXTERNAL_URL,
        query=ASKED.__getitem__,
        name=f"__alert_{alert}",
    )
    return expand_or_say(text, data)


def disagreements(folder: Path, cases: Sequence[tuple[str, str]]) -> list[str]:
    """The cases in which promtool finds other annotations than ours, with what it says."""
    named = {f"Case{number}": case for number, case in enumerate(cases)}
    rules = [
        {"alert": name, "expr": f"subject * {value}", "annotations": {"text": text}}
        for name, (value, text) in named.items()
    ]
    expected = [
        {
            "eval_time": "0m",
            "alertname": name,
            "exp_alerts": [
                {
                    "exp_labels": SUBJECT,
                    "exp_annotations": {"text": our_expansion(name, value, text)},
                }
            ],
        }
        for name, (value, text) in named.items()
    ]
    test = {
        "interval": "1m",
        "external_url": EXTERNAL_URL,
        "external_labels": EXTERNAL,
        "input_series": [series("subject", SUBJECT, 1), *(series(*stored) for stored in STORED)],
        "alert_rule_test": expected,
    }
    write(folder / "rules.yml", {"groups": [{"name": "cases", "rules": rules}]})
    write(folder / "test.yml", {"rule_files": ["rules.yml"], "tests": [test]})
    said = promtool("test", "rules", "test.yml", folder=folder)
    wrong = re.findall(r"alertname: (Case[0-9]+),(.*?)(?=alertname: Case|\Z)", said, re.DOTALL)
    if not wrong:
        assert "SUCCESS" in said, said
    return [f"{named[name]}\n{rest}" for name, rest in wrong]


def test_promtool_expands_every_template_to_what_we_do(tmp_path: Path) -> None:
    wrong = disagreements(tmp_path, ACCEPTED)
    assert not wrong, "\n".join(wrong)


def test_promtool_expands_random_templates_to_what_we_do(tmp_path: Path) -> None:
    maker = Maker(seed=8)
    templates = [("12.5", maker.template()) for _ in range(RANDOM_TEMPLATES)]
    wrong = disagreements(tmp_path, CUT.choose(templates, TEMPLATE_PARTS))
    assert not wrong, "\n".join(wrong)


def test_promtool_refuses_what_we_refuse_in_the_same_words(tmp_path: Path) -> None:
    annotations = {f"case{number}": text for number, text in enumerate(REFUSED)}
    rule = {"alert": "Refused", "expr": "subject", "annotations": annotations}
    write(tmp_path / "rules.yml", {"groups": [{"name": "cases", "rules": [rule]}]})
    said = promtool("check", "rules", "rules.yml", folder=tmp_path)
    theirs = dict(re.findall(r'annotation "(case[0-9]+)": (template: .*?)$', said, re.MULTILINE))
    wrong = []
    for name, text in annotations.items():
        try:
            check(text)
            ours = "(nothing)"
        except TemplateError as error:
            ours = error.as_prometheus("__alert_Refused")
        if ours != f"error parsing template __alert_Refused: {theirs.get(name, '(nothing)')}":
            wrong.append(f"{text!r}: we say {ours}; promtool {theirs.get(name)}")
    assert not wrong, "\n".join(wrong)
