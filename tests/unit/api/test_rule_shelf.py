"""Rule files: which are read, what is wrong with them, and what their bounds are."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from api.base.edited import SETTLED_SECONDS
from api.base.metrics import ServiceMetrics
from api.http.settings import ServiceSettings, load_service_settings
from api.oncall.rules.shelf import PACK, FileState, Shelf
from collector.contract.errors import SettingsError
from tests.stands.edited import write_aged

GOOD = "groups: [{name: g, rules: [{record: 'a:b', expr: 'sum(x)'}]}]\n"


class Rules:
    """A folder of rule files, and a shelf on a clock of the test's."""

    def __init__(self, folder: Path, **settings: object) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.now_s = 1_794_700_000.0
        self.metrics = ServiceMetrics()
        made = ServiceSettings(rules_dir=str(folder), **{"rules_pack": False, **settings})  # type: ignore[arg-type]
        self.shelf = Shelf(made.rules, self.metrics, lambda: self.now_s)

    def write(self, name: str, text: str = GOOD, age_s: float = 60.0) -> None:
        """A file that was last changed so long ago."""
        write_aged(self.folder / name, text, age_s)

    def states(self) -> dict[str, str]:
        return {Path(each.name).name: each.state.value for each in self.shelf.files}

    def error(self, name: str) -> str:
        return next(each.error for each in self.shelf.files if each.name.endswith(name))


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    return Rules(tmp_path / "rules")


def test_files_are_read_in_order_and_again_only_when_they_change(rules: Rules) -> None:
    rules.write("b.yml")
    rules.write("a.yaml")
    rules.write("notes.txt", "not rules")
    assert rules.shelf.look()
    assert list(rules.states()) == ["a.yaml", "b.yml"]
    assert [group.name for group in rules.shelf.groups] == ["g", "g"]
    first = rules.shelf.files[0].loaded_s
    rules.now_s += 60
    assert not rules.shelf.look()
    assert rules.shelf.files[0].loaded_s == first
    rules.write("a.yaml", GOOD.replace("name: g", "name: other"))
    assert rules.shelf.look()
    assert rules.shelf.files[0].loaded_s == rules.now_s
    loaded = rules.metrics.registry.get_sample_value("fabric_service_rules_loaded_time_seconds")
    assert loaded == rules.now_s


def test_a_file_that_is_being_written_ends_no_rules(rules: Rules) -> None:
    """Editors empty a file before they write it, and half of the rules are valid rules."""
    rules.write("a.yaml", age_s=0.0)
    assert rules.shelf.look(), "what is there at the start is taken as it is"
    rules.write("a.yaml", "groups: []", age_s=0.0)
    assert not rules.shelf.look()
    rules.write("a.yaml", "groups: []", SETTLED_SECONDS + 1)
    assert rules.shelf.look()
    assert rules.shelf.groups == []


def test_a_new_file_is_taken_when_it_is_whole(rules: Rules) -> None:
    rules.write("a.yaml")
    rules.shelf.look()
    rules.write("b.yaml", age_s=0.0)
    assert not rules.shelf.look()
    rules.write("b.yaml", age_s=SETTLED_SECONDS + 1)
    assert rules.shelf.look()
    assert list(rules.states()) == ["a.yaml", "b.yaml"]


def test_knobs_that_are_being_written_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "knobs.toml").write_text("")
    rules = Rules(tmp_path, rules_pack=True, rules_knobs=str(tmp_path / "knobs.toml"))
    rules.shelf.look()
    rules.write("knobs.toml", 'runbook_base = "https://wiki', age_s=0.0)
    rules.shelf.look()
    assert set(rules.states().values()) == {"loaded"}
    rules.write("knobs.toml", 'runbook_base = "https://wiki', SETTLED_SECONDS + 1)
    rules.shelf.look()
    assert rules.states()["knobs.toml"] == "refused"


def test_a_file_that_is_replaced_by_one_of_the_same_size_is_read(rules: Rules) -> None:
    rules.write("a.yaml")
    rules.shelf.look()
    path = rules.folder / "a.yaml"
    before = path.stat()
    rules.write("new", GOOD.replace("sum", "max"))
    os.utime(rules.folder / "new", ns=(before.st_atime_ns, before.st_mtime_ns))
    (rules.folder / "new").rename(path)
    assert rules.shelf.look()
    assert rules.shelf.groups[0].rules[0].expression == "max(x)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("groups: [", "line"),
        (GOOD.replace("sum(x)", "sum(x"), "rule 'a:b'"),
        (GOOD.replace("sum(x)", "x[5m]"), "matrix"),
        (GOOD.replace("'sum(x)'", "'\"text\"'"), "string"),
        (GOOD.replace("record: 'a:b'", "alert: A, annotations: {a: '{{ if }}'}"), "a:"),
        ("groups: [{name: g, rulez: []}]", "rulez"),
    ],
)
def test_a_bad_file_is_refused_and_says_why(rules: Rules, text: str, words: str) -> None:
    rules.write("bad.yaml", text)
    rules.write("good.yaml")
    rules.shelf.look()
    assert rules.states() == {"bad.yaml": "refused", "good.yaml": "loaded"}
    assert words in rules.error("bad.yaml")
    assert not rules.shelf.knows(str(rules.folder / "bad.yaml"))
    assert rules.shelf.knows(str(rules.folder / "gone.yaml"))


def test_all_that_is_wrong_with_a_file_is_said_at_once(rules: Rules) -> None:
    rule = "  - {record: 'a:b', expr: 'sum('}\n"
    rules.write("bad.yaml", "groups:\n- name: g\n  rules:\n" + rule * 30)
    rules.shelf.look()
    lines = rules.error("bad.yaml").splitlines()
    assert [line.partition(":")[0] for line in lines[:2]] == ["line 4", "line 5"]
    assert lines[-1] == "and 10 more"


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    path.mkdir()


def make_dead_link(path: Path) -> None:
    path.symlink_to("nowhere")


def make_large(path: Path) -> None:
    path.write_text("#" * (3 << 20))


def make_bytes(path: Path) -> None:
    path.write_bytes(b"groups: \xff\xfe")


@pytest.mark.parametrize(
    "make",
    [make_pipe, make_folder, make_dead_link, make_large, make_bytes],
    ids=lambda one: one.__name__,
)
def test_what_is_no_plain_text_file_is_refused(rules: Rules, make: Callable[[Path], None]) -> None:
    make(rules.folder / "odd.yaml")
    rules.write("good.yaml")
    rules.shelf.look()
    rules.shelf.look()
    assert rules.states() == {"odd.yaml": "refused", "good.yaml": "loaded"}
    assert rules.error("odd.yaml")
    failed = rules.metrics.registry.get_sample_value(
        "fabric_service_rule_reloads_total", {"outcome": "failed"}
    )
    assert failed == 1


def test_files_groups_and_rules_are_bounded(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abcd":
        rules.write(f"{name}.yaml")
    monkeypatch.setattr("api.oncall.rules.shelf.RULE_FILES_MAX", 3)
    monkeypatch.setattr("api.oncall.rules.shelf.RULES_MAX", 2)
    rules.shelf.look()
    rules.shelf.look()
    assert rules.states() == {"a.yaml": "loaded", "b.yaml": "loaded", "c.yaml": "refused"}
    assert "RULES_MAX is 2" in rules.error("c.yaml")
    left_out = "fabric_service_rule_files_left_out_total"
    assert rules.metrics.registry.get_sample_value(left_out) == 1
    monkeypatch.setattr("api.oncall.rules.shelf.RULE_GROUPS_MAX", 1)
    rules.write("a.yaml", GOOD.replace("name: g", "name: again"))
    rules.shelf.look()
    assert rules.states()["a.yaml"] == "kept"


def test_the_whole_pack_loads_with_the_runbooks_of_this_service(tmp_path: Path) -> None:
    rules = Rules(tmp_path / "rules", rules_pack=True, external_url="https://fabric.example/x/")
    rules.shelf.look()
    bad = [each for each in rules.shelf.files if each.state is not FileState.LOADED]
    assert bad == []
    texts = [
        text
        for group in rules.shelf.groups
        for rule in group.rules
        for name, text in rule.annotations.items()
        if name == "runbook_url"
    ]
    assert texts
    assert all(text.startswith("https://fabric.example/x/runbooks") for text in texts)


def test_knobs_are_turned_again_when_their_file_changes(tmp_path: Path) -> None:
    rules = Rules(tmp_path, rules_pack=True, rules_knobs=str(tmp_path / "knobs.toml"))
    rules.write("knobs.toml", 'runbook_base = "http://one"\n')
    rules.shelf.look()
    before = rules.shelf.groups
    assert any("http://one" in str(rule.annotations) for one in before for rule in one.rules)
    rules.write("knobs.toml", "no_such_knob = 5\n")
    assert not rules.shelf.look()
    assert rules.shelf.groups == before
    assert "no_such_knob" in rules.error("knobs.toml")
    rules.write("knobs.toml", 'runbook_base = "http://second"\n')
    assert rules.shelf.look()
    assert [each for each in rules.shelf.files if not each.name.startswith(PACK)] == []
    after = rules.shelf.groups
    assert any("http://second" in str(rule.annotations) for one in after for rule in one.rules)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rules_interval_s": "0.1"}, "rules_interval_s"),
        ({"rules_dir": "/nowhere/at/all"}, "rules_dir"),
        ({"rules_knobs": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"external_url": "fabric.example"}, "external_url"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(given: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_service_settings(None, given, {})


def test_labels_of_the_installation_come_from_the_environment() -> None:
    variables = {"FABRICSCOPE_EXTERNAL_LABELS__CLUSTER": "a", "FABRICSCOPE_RULES_PACK": "false"}
    settings = load_service_settings(None, {}, variables)
    assert settings.external_labels == {"cluster": "a"}
    assert not settings.rules_pack
