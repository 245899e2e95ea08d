"""The web application: pages from memory, two interfaces, errors as messages."""

from __future__ import annotations

import logging
import mimetypes
from collections.abc import Callable, Iterable
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from .. import browser
from ..errors import DTMCodecError
from .demo import CLIPS_PATH, Demo, demo_routes
from .guard import LOOPBACK_NAMES, Guard
from .listening.routes import RunningTest, listening_routes
from .live import live_routes

log = logging.getLogger("dtm_codec.web")

STATIC = "/static/"


def create_app(
    demo: Demo | None = None,
    listening: RunningTest | None = None,
    admin_token: str = "",
    hosts: Iterable[str] | None = LOOPBACK_NAMES,
) -> Guard:
    """An application with the demo, a listening test, or both. The first page is the test's if there is one.

    hosts: names this server answers to; None for any, when it is meant to be reached from elsewhere.
    """
    app = FastAPI(title="DTM-Codec", docs_url=None, redoc_url=None, openapi_url=None)
    if demo is not None:
        app.include_router(demo_routes(demo))
        app.include_router(live_routes(demo.live))
    if listening is not None:
        if not admin_token:
            raise ValueError("a listening test needs an admin token")
        app.include_router(listening_routes(listening, admin_token))
    _add_pages(app, demo is not None, listening is not None)
    _add_error_messages(app)
    return Guard(app, hosts, {CLIPS_PATH: demo.max_bytes} if demo else {})


def _add_pages(app: FastAPI, demo: bool, listening: bool) -> None:
    """Pages and static files, read once: a request is looked up by name and never reaches the file system."""
    files = {
        entry.name: (entry.read_bytes(), mimetypes.guess_type(entry.name)[0] or "application/octet-stream")
        for entry in (*resources.files(__package__).joinpath("static").iterdir(), *browser.scripts())
        if entry.is_file()
    }
    pages = {"/demo": "demo.html"} if demo else {}
    if listening:
        pages |= {"/listen": "listen.html", "/results": "results.html"}
    pages["/"] = "listen.html" if listening else "demo.html"

    def serve(name: str) -> Response:
        data, kind = files[name]
        return Response(data, media_type=kind, headers={"Cache-Control": "no-cache"})

    def page(name: str) -> Callable[[], Response]:
        return lambda: serve(name)

    for path, name in pages.items():
        app.add_api_route(path, page(name), methods=["GET", "HEAD"], response_model=None)

    @app.get(STATIC + "{name}")
    def static(name: str) -> Response:
        if name not in files or name.endswith(".html"):
            raise HTTPException(404, "no such page")
        return serve(name)


def _add_error_messages(app: FastAPI) -> None:
    """Every error is one JSON line; what nobody foresaw goes to the log, not to the browser."""

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> JSONResponse:
        message = "no such page" if error.detail == "Not Found" else error.detail
        return JSONResponse({"error": message}, error.status_code, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": "; ".join(map(_one_line, error.errors()))}, 422)

    @app.exception_handler(DTMCodecError)
    async def user_error(_: Request, error: DTMCodecError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 422)

    @app.exception_handler(ClientDisconnect)
    async def gone(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=400)  # nobody reads it: the sender hung up in the middle

    @app.exception_handler(Exception)
    async def unforeseen(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return JSONResponse({"error": "the server failed at this; its log says why"}, 500)


def _one_line(error: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in error.get("loc", ()) if part != "body")
    return f"{where}: {error.get('msg', 'invalid')}" if where else str(error.get("msg", "invalid"))
