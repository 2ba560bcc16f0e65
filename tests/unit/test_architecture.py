"""The floors cover every module, the walks are true, and the drawing is of this code."""

import pytest

from tests.tools import architecture
from tests.tools.architecture import ROOT, WALKS, Step, Walk, draw, floor_of, mistakes

PACKAGES = ("collector", "api", "alerts", "simulator", "dashboards")


def test_every_module_stands_on_a_floor() -> None:
    homeless = []
    for path in sorted(each for name in PACKAGES for each in (ROOT / name).rglob("*.py")):
        if "node_modules" in path.parts or (
            path.parent.name in PACKAGES and path.stem == "__init__"
        ):
            continue
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        try:
            floor_of(module)
        except ValueError as error:
            homeless.append(str(error))
    assert not homeless


def test_walks_follow_imports_and_never_lead_back_up() -> None:
    assert list(mistakes()) == []


@pytest.mark.parametrize(
    ("modules", "mistake"),
    [
        (("api.data.store.store", "api.http.app"), "stands above"),
        (("api.http.app", "alerts.window.split"), "no module before"),
    ],
)
def test_a_walk_that_is_not_true_is_found(
    modules: tuple[str, ...], mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = Walk("a wrong one", tuple(Step(module, "") for module in modules))
    monkeypatch.setattr(architecture, "WALKS", (*WALKS, walk))
    assert any(mistake in found for found in mistakes())


def test_the_drawing_is_of_this_code() -> None:
    assert architecture.DRAWING.read_text("utf-8") == draw(), "run make docs"
