"""CONTRIBUTING's table is true: recipes are followed in a copy of this tree, and files counted.

All recipes go into one copy, and one pytest runs the checks of all of them: a check that does not
look at what is new, or that fails, is the recipe's failure.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.stands.environment import clean_environment
from tests.test_tidy import repository_files
from tests.tools.recipes import RECIPES, ROOT, Recipe

pytestmark = pytest.mark.slow

RUN_SECONDS = 600
RESULT = re.compile(r"^(tests/\S+?)(?:\[(.*)\])? (PASSED|FAILED|ERROR|SKIPPED)", re.MULTILINE)
ROW = re.compile(r"^\| ([a-z ]+) \| (.+) \| (\d+) \| (.+) \|$", re.MULTILINE)


class Ran(NamedTuple):
    """One test that ran in the copy."""

    test: str
    thing: str
    """What it was asked of; empty where it is asked once."""
    result: str


def follow(copy: Path, recipe: Recipe) -> None:
    """Write what a recipe asks for."""
    for path, text in recipe.files.items():
        target = copy / path
        assert not target.exists(), f"{path} is there already: the recipe needs another name"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    for path, (pattern, text) in recipe.edits.items():
        before = (copy / path).read_text("utf-8")
        after = re.sub(pattern, text, before, flags=re.MULTILINE) if pattern else before + text
        assert after != before, f"{path}: nothing is like {pattern}"
        (copy / path).write_text(after, "utf-8")


def run(copy: Path, *words: str, fails: bool = False) -> str:
    """A program's output in the copy; it must exit with 0 unless it may fail."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=copy,
        env={**clean_environment(), "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS,
    )
    assert fails or done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree in which all recipes were followed, as `make golden docs` leaves it."""
    copy = tmp_path_factory.mktemp("recipes")
    for path in repository_files():
        target = copy / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    for recipe in RECIPES.values():
        follow(copy, recipe)
    goldens = "tests/conformance/test_sources.py::test_the_reading_is_exactly_what_is_expected"
    run(copy, "-m", "pytest", "-q", "-n0", "--update-golden", goldens, "-k", "entropy")
    run(copy, "-m", "tests.tools.docs_tables", "--write")
    return copy


@pytest.fixture(scope="module")
def ran(copy: Path) -> list[Ran]:
    """The output of all recipes' checks in the copy: for each new thing, and for all together."""
    recipes = RECIPES.values()
    checks = sorted({check for recipe in recipes for check in (*recipe.each, *recipe.once)})
    words = {recipe.name for recipe in recipes if recipe.each}
    words |= {
        re.split("/|::", check)[-1].removesuffix(".py") for each in recipes for check in each.once
    }
    chosen = ("-k", " or ".join(sorted(words)))
    said = run(
        copy, "-m", "pytest", "-v", "-n0", "-p", "no:cacheprovider", *chosen, *checks, fails=True
    )
    found = [Ran(*groups) for groups in RESULT.findall(said)]
    assert found, said
    return found


@pytest.mark.parametrize("kind", RECIPES)
def test_a_recipe_is_followed_and_everything_passes(kind: str, ran: list[Ran]) -> None:
    recipe = RECIPES[kind]
    for check in (*recipe.each, *recipe.once):
        mine = [one for one in ran if one.test == check or one.test.startswith(f"{check}::")]
        if check in recipe.each:
            mine = [one for one in mine if recipe.name in one.thing]
        assert mine, f"{check} was not asked of {recipe.name}"
        assert [one for one in mine if one.result != "PASSED"] == []


def test_the_tests_of_a_new_rule_are_run_by_the_verb(copy: Path) -> None:
    both = "from collector.cli import main; import sys; sys.exit(main({}) or main({}))"
    build = ["rules", "build", "--out", "build/release/rules"]
    test = ["rules", "test", "tests/rules/stragglers.yaml", "--run", "FabricRankVeryLate"]
    assert "5 tests" in run(copy, "-c", both.format(build, test))


def test_the_table_of_contributing_names_what_a_recipe_writes_and_counts_it() -> None:
    rows = ROW.findall((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    assert {kind: int(count) for kind, _, count, _ in rows} == {
        kind: len(recipe.written) for kind, recipe in RECIPES.items()
    }
    for kind, told, _, _ in rows:
        folders = {
            path if path in told else f"{Path(path).parent}/" for path in RECIPES[kind].written
        }
        assert [folder for folder in sorted(folders) if folder not in told] == []
