"""The page about the interface: whatever a description says, it stays text."""

import json
import re
from collections import Counter
from pathlib import Path

from api.http.docs_page import render_page
from api.http.schema_names import SHOWN_NAMES

DOCUMENT = Path(__file__).parents[2] / "fixtures/openapi.json"

HOSTILE = "<script>alert('x')</script>\"'"


def test_everything_from_the_document_is_escaped() -> None:
    page = render_page(
        {
            "info": {"title": HOSTILE, "version": HOSTILE, "summary": HOSTILE},
            "paths": {
                f"/{HOSTILE}": {
                    "get": {
                        "tags": [HOSTILE],
                        "summary": HOSTILE,
                        "description": HOSTILE,
                        "parameters": [
                            {
                                "name": HOSTILE,
                                "description": HOSTILE,
                                "required": True,
                                "schema": {"default": HOSTILE, "enum": [HOSTILE], "minimum": 1},
                            }
                        ],
                        "responses": {
                            HOSTILE: {},
                            "200": {
                                "description": HOSTILE,
                                "content": {
                                    HOSTILE: {
                                        "schema": {
                                            "properties": {
                                                HOSTILE: {"type": HOSTILE, "description": HOSTILE},
                                                "b": {"$ref": f"#/components/schemas/{HOSTILE}"},
                                            }
                                        }
                                    }
                                },
                            },
                        },
                    }
                }
            },
            "components": {"schemas": {HOSTILE: {"description": HOSTILE, "enum": [HOSTILE]}}},
        }
    )
    assert page.count("<script") == 1, "the page's own, which its policy names by its hash"
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;") >= 9


def test_schemas_have_plain_names_that_are_not_two_schemas() -> None:
    """A schema is named after its module where two classes are called alike."""
    document = json.loads(DOCUMENT.read_bytes())
    page = render_page(document)
    shown = re.findall(r"<summary><code>(.*?)</code></summary>", page)
    linked = re.findall(r"<a href=.#schema-[^>]*>(.*?)</a>", page)
    assert len(shown) == len(document["components"]["schemas"])
    assert [name for name in {*shown, *linked} if "__" in name or "-" in name] == []
    assert [name for name, count in Counter(shown).items() if count > 1] == []
    assert set(linked) <= set(shown)
    assert set(SHOWN_NAMES) <= set(document["components"]["schemas"]), "of none that is gone"
