"""Serves the page of `folder.py`: files by name from memory, with the headers that let it use several threads."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Iterable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..guard import HEADERS, LOOPBACK_NAMES, Guard
from .folder import INDEX, POLICY, Files

PAGE_HEADERS = HEADERS | {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "Cross-Origin-Embedder-Policy": "require-corp",
}

_KINDS = {".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm"}


def create_page_app(files: Files, hosts: Iterable[str] | None = LOOPBACK_NAMES) -> Guard:
    """hosts: names this server answers to; None for any."""
    marks = {path: f'"{hashlib.sha256(data).hexdigest()[:32]}"' for path, data in files.items()}

    def serve(request: Request) -> Response:
        path = request.path_params["path"] or INDEX
        if path not in files:
            return JSONResponse({"error": "no such page"}, 404)
        lasting = "v" in request.query_params  # a name with its hash
        headers = {"ETag": marks[path], "Cache-Control": "max-age=31536000, immutable" if lasting else "no-cache"}
        if request.headers.get("if-none-match") == marks[path]:
            return Response(status_code=304, headers=headers)
        return Response(files[path], media_type=_kind(path), headers=headers)

    return Guard(Starlette(routes=[Route("/{path:path}", serve)]), hosts, {}, PAGE_HEADERS)


def _kind(path: str) -> str:
    suffix = path[path.rfind(".") :]
    return _KINDS.get(suffix) or mimetypes.guess_type(path)[0] or "application/octet-stream"
