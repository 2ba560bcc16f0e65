"""The page about the interface: whatever a description says, it stays text."""

from api.http.docs_page import render_page

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
