"""A Grafana double: it answers the calls that we make, as Grafana's documentation says.

Folders, data sources, dashboards with their versions, search, annotations and health, with the
documented bodies and statuses (https://grafana.com/docs/grafana/latest/developers/http_api/; the
words of refusals from Grafana's table of errors). It keeps what it is given in memory, writes down
every call, and fails on demand. What it does not check a real Grafana may: see the how-to.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

Json = dict[str, Any]
Answer = tuple[int, Any]

ADMIN, EDITOR, VIEWER = "glsa_admin_0123456789", "glsa_editor_0123456789", "glsa_viewer_0123456789"
"""Tokens of three service accounts."""
RIGHTS = {
    ADMIN: {"read", "boards", "annotations", "datasources"},
    EDITOR: {"read", "boards", "annotations"},
    VIEWER: {"read"},
}
SAVED = "2026-11-16T01:30:00Z"
"""When everything was saved: golden files must not change with the clock."""
UID_CHARS_MAX, MESSAGE_CHARS_MAX, TAG_CHARS_MAX = 40, 500, 100
"""Grafana's bounds."""

SHUTDOWN_SECONDS = 0.01
"""How long its end may take to be noticed: every test has a double of its own."""


@dataclass
class Fault:
    """What is answered instead, so many times, to calls whose "METHOD path" begins so."""

    start: str
    status: int
    body: bytes
    times: int = 1
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    is_done: bool = False
    """Do what was asked first: only the answer is lost."""


class Refusal(Exception):  # noqa: N818 - an answer, no error of ours
    """An answer that says no."""

    def __init__(self, code: int, /, **body: Any) -> None:  # noqa: ANN401 - JSON
        super().__init__(str(body))
        self.answer: Answer = (code, body)


class GrafanaDouble:
    """Serves on loopback between `with` and its end. ``path``: as with `serve_from_sub_path`."""

    def __init__(
        self, path: str = "", version: str = "11.2.0", tls: ssl.SSLContext | None = None
    ) -> None:
        self.version = version
        self.path = path
        self.calls: list[tuple[str, str, Any]] = []
        """Method, address behind /api, and body of each call."""
        self.faults: list[Fault] = []
        self.folders: dict[str, Json] = {}
        self.sources: dict[str, Json] = {}
        self.boards: dict[str, list[Json]] = {}
        """By uid, the versions of each: dashboard, folderUid, message, version."""
        self.provisioned: set[str] = set()
        """Uids of dashboards that come from files."""
        self.annotations: dict[int, Json] = {}
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), make_handler(self))
        self._scheme = "https" if tls else "http"
        if tls:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(SHUTDOWN_SECONDS,), daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Its address, with the path."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}{self.path}"

    @property
    def writes(self) -> list[tuple[str, str, Any]]:
        """The calls that were no questions."""
        return [call for call in self.calls if call[0] != "GET"]

    # --- one call --------------------------------------------------------------------------------

    def handle(self, method: str, target: str, token: str, body: bytes) -> tuple[int, Fault | Json]:
        """Status and answer of one call: JSON, or the fault that stands in its place."""
        with self._lock:
            if not target.startswith(f"{self.path}/api/"):
                return 404, {"message": "Not found"}
            address = target.removeprefix(f"{self.path}/api")
            content = json.loads(body) if body else None
            self.calls.append((method, address, content))
            fault = next(
                (one for one in self.faults if f"{method} {address}".startswith(one.start)), None
            )
            if fault is not None:
                fault.times -= 1
                if not fault.times:
                    self.faults.remove(fault)
                if fault.is_done:
                    self._answer(method, address, token, content)
                return fault.status, fault
            return self._answer(method, address, token, content)

    def _answer(self, method: str, address: str, token: str, body: Any) -> Answer:  # noqa: ANN401
        """The answer of the first route that fits."""
        parts = urlsplit(address)
        if parts.path == "/health":
            return 200, {"commit": "087143285", "database": "ok", "version": self.version}
        try:
            self._let_in(token, "read", "")
            for route_method, pattern, right, name in ROUTES:
                found = re.fullmatch(pattern, parts.path)
                if found and method == route_method:
                    self._let_in(token, right, name)
                    words = [unquote(word) for word in found.groups()]
                    asked = parse_qs(parts.query)
                    return getattr(self, f"_{name}")(body or {}, asked, *words)  # type: ignore[no-any-return]
        except Refusal as refusal:
            return refusal.answer
        return 404, {"message": "Not found"}

    def _let_in(self, token: str, right: str, name: str) -> None:
        """Refuse a token without the needed role."""
        if token not in RIGHTS:
            raise Refusal(401, message="Invalid API key" if token else "Unauthorized")
        if right not in RIGHTS[token]:
            needed = "You'll need additional permissions to perform this action. "
            raise Refusal(
                403,
                accessErrorId="ACE0123456789",
                message=f"{needed}Permissions needed: {PERMISSIONS[name]}",
                title="Access denied",
            )

    # --- folders ---------------------------------------------------------------------------------

    def _list_folders(self, _: Json, __: Json) -> Answer:
        return 200, [
            {"id": one["id"], "uid": one["uid"], "title": one["title"]}
            for one in self.folders.values()
        ]

    def _get_folder(self, _: Json, __: Json, uid: str) -> Answer:
        if uid not in self.folders:
            raise Refusal(404, message="folder not found", status="not-found")
        return 200, self.folders[uid]

    def _create_folder(self, body: Json, _: Json) -> Answer:
        uid, title = body.get("uid") or f"folder-{next(self._ids)}", body.get("title", "")
        if not title:
            raise Refusal(400, message="folder title cannot be empty")
        if uid in self.folders:
            raise Refusal(409, message="a folder/dashboard with the same uid already exists")
        self.folders[uid] = {
            "id": next(self._ids),
            "uid": uid,
            "title": title,
            "url": f"/dashboards/f/{uid}/{slug(title)}",
            "hasAcl": False,
            "canSave": True,
            "canEdit": True,
            "canAdmin": True,
            "createdBy": "admin",
            "created": SAVED,
            "updatedBy": "admin",
            "updated": SAVED,
            "version": 1,
        }
        return 200, self.folders[uid]

    def _delete_folder(self, _: Json, __: Json, uid: str) -> Answer:
        folder = self.folders.pop(uid, None)
        if folder is None:
            raise Refusal(404, message="folder not found", status="not-found")
        for board in [key for key, rows in self.boards.items() if rows[-1]["folderUid"] == uid]:
            del self.boards[board]
        return 200, {"message": "Folder deleted", "id": folder["id"]}

    # --- data sources ----------------------------------------------------------------------------

    def _get_source(self, _: Json, __: Json, uid: str) -> Answer:
        if uid not in self.sources:
            raise Refusal(404, message="Data source not found", traceID="")
        return 200, shown_source(self.sources[uid])

    def _get_source_by_name(self, _: Json, __: Json, name: str) -> Answer:
        for source in self.sources.values():
            if source["name"] == name:
                return 200, shown_source(source)
        raise Refusal(404, message="Data source not found", traceID="")

    def _create_source(self, body: Json, _: Json) -> Answer:
        uid = body.get("uid") or f"source-{next(self._ids)}"
        if uid in self.sources or any(one["name"] == body["name"] for one in self.sources.values()):
            raise Refusal(409, message="data source with the same name already exists", traceID="")
        self.sources[uid] = {
            "orgId": 1,
            "typeLogoUrl": "public/app/plugins/datasource/prometheus/img/prometheus_logo.svg",
            "user": "",
            "database": "",
            "basicAuth": False,
            "basicAuthUser": "",
            "withCredentials": False,
            "isDefault": False,
            "jsonData": {},
            "readOnly": False,
            **body,
            "id": next(self._ids),
            "uid": uid,
            "version": 1,
        }
        return 200, self._source_answer(uid, "Datasource added")

    def _update_source(self, body: Json, _: Json, uid: str) -> Answer:
        if uid not in self.sources:
            raise Refusal(404, message="Data source not found", traceID="")
        had = self.sources[uid]
        if had["readOnly"]:
            raise Refusal(403, message="Cannot update read-only data source")
        if body.get("version") and body["version"] != had["version"]:
            message = "Datasource has already been updated by someone else. Please reload"
            raise Refusal(409, message=message)
        # A secret that is not sent again stays.
        secrets = {**had.get("secureJsonData", {}), **body.get("secureJsonData", {})}
        made = {**had, **body, "id": had["id"], "version": had["version"] + 1}
        self.sources[uid] = {**made, "secureJsonData": secrets}
        return 200, self._source_answer(uid, "Datasource updated")

    def _delete_source(self, _: Json, __: Json, uid: str) -> Answer:
        if self.sources.pop(uid, None) is None:
            raise Refusal(404, message="Data source not found", traceID="")
        return 200, {"message": "Data source deleted"}

    def _source_answer(self, uid: str, message: str) -> Json:
        source = shown_source(self.sources[uid])
        return {
            "datasource": source,
            "id": source["id"],
            "message": message,
            "name": source["name"],
        }

    # --- dashboards ------------------------------------------------------------------------------

    def _save_board(self, body: Json, _: Json) -> Answer:
        board, folder = body.get("dashboard") or {}, body.get("folderUid") or ""
        uid, title = board.get("uid") or f"board-{next(self._ids)}", board.get("title", "")
        if not title:
            raise Refusal(400, message="Dashboard title cannot be empty", status="empty-name")
        if len(uid) > UID_CHARS_MAX:
            raise Refusal(400, message="uid too long, max 40 characters")
        if len(body.get("message", "")) > MESSAGE_CHARS_MAX:
            raise Refusal(400, message="message too long, max 500 characters")
        if folder and folder not in self.folders:
            raise Refusal(404, message="Folder not found")
        if uid in self.provisioned:
            raise Refusal(400, message="Cannot save provisioned dashboard")
        rows = self.boards.get(uid, [])
        if not body.get("overwrite"):
            self._check_board(uid, title, folder, int(board.get("version") or 0))
        number = rows[-1]["version"] + 1 if rows else 1
        made = copy.deepcopy(board)
        made |= {"id": rows[-1]["dashboard"]["id"] if rows else next(self._ids), "uid": uid}
        made["version"] = number
        row = {"dashboard": made, "folderUid": folder, "version": number}
        self.boards.setdefault(uid, []).append({**row, "message": body.get("message", "")})
        return 200, {
            "id": made["id"],
            "uid": uid,
            "url": f"/d/{uid}/{slug(title)}",
            "status": "success",
            "version": number,
            "slug": slug(title),
        }

    def _check_board(self, uid: str, title: str, folder: str, version: int) -> None:
        """Refuse a write that would overwrite another user's change."""
        rows = self.boards.get(uid, [])
        if rows and version != rows[-1]["version"]:
            message = "The dashboard has been changed by someone else"
            raise Refusal(412, message=message, status="version-mismatch")
        for other, versions in self.boards.items():
            there = versions[-1]
            is_same = there["dashboard"]["title"] == title and there["folderUid"] == folder
            if other != uid and is_same:
                message = "A dashboard with the same name in the folder already exists"
                raise Refusal(412, message=message, status="name-exists")

    def _get_board(self, _: Json, __: Json, uid: str) -> Answer:
        row = self._newest(uid)
        folder = self.folders.get(row["folderUid"], {})
        title = row["dashboard"]["title"]
        meta = {
            "type": "db",
            "canSave": True,
            "canEdit": True,
            "canAdmin": True,
            "canStar": True,
            "canDelete": True,
            "slug": slug(title),
            "url": f"/d/{uid}/{slug(title)}",
            "expires": "0001-01-01T00:00:00Z",
            "created": SAVED,
            "updated": SAVED,
            "updatedBy": "admin",
            "createdBy": "admin",
            "version": row["version"],
            "hasAcl": False,
            "isFolder": False,
            "folderId": folder.get("id", 0),
            "folderUid": row["folderUid"],
            "folderTitle": folder.get("title", "General"),
            "folderUrl": folder.get("url", ""),
            "provisioned": uid in self.provisioned,
            "provisionedExternalId": "",
        }
        return 200, {"meta": meta, "dashboard": row["dashboard"]}

    def _delete_board(self, _: Json, __: Json, uid: str) -> Answer:
        title = self._newest(uid)["dashboard"]["title"]
        if uid in self.provisioned:
            raise Refusal(400, message="provisioned dashboard cannot be deleted")
        number = self.boards.pop(uid)[-1]["dashboard"]["id"]
        message = f"Dashboard {title} deleted"
        return 200, {"title": title, "message": message, "id": number}

    def _list_versions(self, _: Json, asked: dict[str, list[str]], uid: str) -> Answer:
        self._newest(uid)
        rows = [
            {
                "id": row["version"],
                "dashboardId": row["dashboard"]["id"],
                "uid": uid,
                "parentVersion": row["version"] - 1,
                "restoredFrom": 0,
                "version": row["version"],
                "created": SAVED,
                "createdBy": "admin",
                "message": row["message"],
            }
            for row in reversed(self.boards[uid])
        ][: int(asked.get("limit", ["1000"])[0]) or 1000]
        # Documented as a list; newer ones give this (grafana/grafana issue 104556).
        is_list = int(self.version.split(".")[0]) < 12
        return 200, rows if is_list else {"continueToken": "", "versions": rows}

    def _newest(self, uid: str) -> Json:
        if uid not in self.boards:
            raise Refusal(404, message="Dashboard not found", status="not-found")
        return self.boards[uid][-1]

    def _search(self, _: Json, asked: dict[str, list[str]]) -> Answer:
        found = []
        for uid, rows in self.boards.items():
            board, folder = rows[-1]["dashboard"], rows[-1]["folderUid"]
            if "folderUIDs" in asked and folder not in asked["folderUIDs"]:
                continue
            if not set(asked.get("tag", [])) <= set(board.get("tags") or []):
                continue
            entry = {
                "id": board["id"],
                "uid": uid,
                "title": board["title"],
                "uri": f"db/{slug(board['title'])}",
                "url": f"/d/{uid}/{slug(board['title'])}",
                "slug": "",
                "type": "dash-db",
                "tags": board.get("tags") or [],
                "isStarred": False,
            }
            if folder:
                entry |= {"folderUid": folder, "folderTitle": self.folders[folder]["title"]}
            found.append(entry)
        return 200, found[: int(asked.get("limit", ["1000"])[0])]

    # --- annotations -----------------------------------------------------------------------------

    def _find_annotations(self, _: Json, asked: dict[str, list[str]]) -> Answer:
        start = int(asked.get("from", ["0"])[0])
        end = int(asked.get("to", [str(1 << 62)])[0])
        rows = [
            row
            for row in self.annotations.values()
            if row["time"] <= end
            and row["timeEnd"] >= start
            and set(asked.get("tags", [])) <= set(row["tags"])
        ]
        rows.sort(key=lambda row: -row["timeEnd"])
        return 200, rows[: int(asked.get("limit", ["100"])[0])]

    def _create_annotation(self, body: Json, _: Json) -> Answer:
        number = next(self._ids)
        self.annotations[number] = {
            "id": number,
            "alertId": 0,
            "dashboardId": 0,
            "dashboardUID": None,
            "panelId": body.get("panelId") or 0,
            "userId": 1,
            "newState": "",
            "prevState": "",
            "login": "sa-push",
            "data": {},
            **self._checked_annotation(body),
        }
        return 200, {"message": "Annotation added", "id": number}

    def _checked_annotation(self, body: Json) -> Json:
        if not body.get("text"):
            error = "text field should not be empty"
            raise Refusal(400, message="Failed to save annotation", error=error)
        tags = body.get("tags") or []
        if any(len(tag) > TAG_CHARS_MAX for tag in tags):
            raise Refusal(400, message="Failed to save annotation", error="tag is too long")
        start = int(body["time"])
        end = int(body.get("timeEnd") or start)
        return {"time": start, "timeEnd": end, "text": body["text"], "tags": tags}

    def _update_annotation(self, body: Json, _: Json, number: str) -> Answer:
        self._annotation(number).update(self._checked_annotation(body))
        return 200, {"message": "Annotation updated"}

    def _delete_annotation(self, _: Json, __: Json, number: str) -> Answer:
        self._annotation(number)
        del self.annotations[int(number)]
        return 200, {"message": "Annotation deleted"}

    def _annotation(self, number: str) -> Json:
        if int(number) not in self.annotations:
            raise Refusal(404, message="Annotation not found")
        return self.annotations[int(number)]


ROUTES = [
    ("GET", "/folders", "read", "list_folders"),
    ("GET", "/folders/([^/]+)", "read", "get_folder"),
    ("POST", "/folders", "boards", "create_folder"),
    ("DELETE", "/folders/([^/]+)", "boards", "delete_folder"),
    ("GET", "/datasources/uid/([^/]+)", "datasources", "get_source"),
    ("GET", "/datasources/name/([^/]+)", "datasources", "get_source_by_name"),
    ("POST", "/datasources", "datasources", "create_source"),
    ("PUT", "/datasources/uid/([^/]+)", "datasources", "update_source"),
    ("DELETE", "/datasources/uid/([^/]+)", "datasources", "delete_source"),
    ("POST", "/dashboards/db", "boards", "save_board"),
    ("GET", "/dashboards/uid/([^/]+)", "read", "get_board"),
    ("DELETE", "/dashboards/uid/([^/]+)", "boards", "delete_board"),
    ("GET", "/dashboards/uid/([^/]+)/versions", "read", "list_versions"),
    ("GET", "/search", "read", "search"),
    ("GET", "/annotations", "read", "find_annotations"),
    ("POST", "/annotations", "annotations", "create_annotation"),
    ("PUT", r"/annotations/(\d+)", "annotations", "update_annotation"),
    ("DELETE", r"/annotations/(\d+)", "annotations", "delete_annotation"),
]
"""Method, path behind /api, what a token needs, and the method that answers."""
PERMISSIONS = {
    "create_folder": "folders:create",
    "delete_folder": "folders:delete",
    "get_source": "datasources:read",
    "get_source_by_name": "datasources:read",
    "create_source": "datasources:create",
    "update_source": "datasources:write",
    "delete_source": "datasources:delete",
    "save_board": "dashboards:create",
    "delete_board": "dashboards:delete",
    "create_annotation": "annotations:create",
    "update_annotation": "annotations:write",
    "delete_annotation": "annotations:delete",
}


def slug(title: str) -> str:
    """The end of a dashboard's address."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def shown_source(source: Json) -> Json:
    """A data source as Grafana shows it: of secrets only that they are there."""
    shown = {key: value for key, value in source.items() if key != "secureJsonData"}
    return {**shown, "secureJsonFields": dict.fromkeys(source.get("secureJsonData", {}), True)}


def make_handler(double: GrafanaDouble) -> type[BaseHTTPRequestHandler]:
    """The class that speaks HTTP for one double."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # An answer in one piece: in two, the second waits 40 ms for the other side's delayed ACK.
        wbufsize = -1

        def log_message(self, *_: object) -> None:
            """Quiet: what was called is in `calls`."""

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            # Questions have no body; what is no JSON is not read.
            is_json = "json" in self.headers.get("Content-Type", "")
            status, answer = double.handle(self.command, self.path, token, body if is_json else b"")
            if isinstance(answer, Fault):
                content, kind, headers = answer.body, answer.content_type, answer.headers
            else:
                content, kind, headers = json.dumps(answer).encode(), "application/json", {}
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - the library's

    return Handler
