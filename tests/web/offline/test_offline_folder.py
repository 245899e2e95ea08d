"""The page as a folder and on a server; where onnxruntime-web comes from; what users get wrong."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

import pytest
from fastapi.testclient import TestClient

from dtm_codec import DTMCodec
from dtm_codec.cli import main, web
from dtm_codec.errors import ConfigError, ModelError
from dtm_codec.web.offline import folder
from dtm_codec.web.offline.app import create_page_app
from dtm_codec.web.offline.onnxruntime_web import FILES, Pinned, runtime_files


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """What npm would install, but for its content."""
    root = tmp_path / "onnxruntime-web"
    (root / "dist").mkdir(parents=True)
    (root / "package.json").write_text(json.dumps({"version": Pinned.read().version}))
    for name in FILES:
        (root / "dist" / name).write_text(f"// {name}")
    return root


@pytest.fixture
def small_page(package: Path) -> folder.Files:
    """The page with a runtime that does not run."""
    return folder.page_files("small", package)


# onnxruntime-web


def packed(package: Path) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as opened:
        opened.add(package, "package")
    return archive.getvalue()


def test_an_installed_package_is_taken(package: Path):
    assert runtime_files(package)["ort.wasm.min.mjs"] == b"// ort.wasm.min.mjs"


def test_another_version_is_refused(package: Path):
    (package / "package.json").write_text('{"version": "0.1"}')
    with pytest.raises(ConfigError, match=f"version '0.1' of onnxruntime-web; allowed: {Pinned.read().version}"):
        runtime_files(package)


def test_a_folder_of_something_else_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="no onnxruntime-web that npm installed"):
        runtime_files(tmp_path)


def test_only_the_pinned_archive_is_taken(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    archive = tmp_path / "ort.tgz"
    archive.write_bytes(packed(package))
    with pytest.raises(ConfigError, match=r"ort\.tgz has the hash sha512-.*; allowed: sha512-"):
        runtime_files(archive)
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    monkeypatch.setattr(Pinned, "read", classmethod(lambda cls: cls("1.0", integrity)))
    assert runtime_files(archive).keys() == set(FILES)


def test_it_is_fetched_once(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    data = packed(package)
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
    monkeypatch.setattr(Pinned, "read", classmethod(lambda cls: cls("1.0", integrity)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "it.tgz").write_bytes(data)
    npm(tmp_path, f'echo "$2" >> {tmp_path}/asked; cp {tmp_path}/it.tgz "$5"', monkeypatch)
    assert runtime_files() == runtime_files()
    assert (tmp_path / "asked").read_text() == "onnxruntime-web@1.0\n"


@pytest.mark.parametrize(
    ("script", "said"),
    [("echo 'no network' >&2; exit 1", "no network"), ("exit 3", "npm ended with 3"), (None, "npm is not installed")],
)
def test_without_a_network_the_error_says_what_helps(
    script: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    npm(tmp_path, script, monkeypatch)
    with pytest.raises(ConfigError, match=rf"cannot be fetched \(.*{said}\).*npm pack onnxruntime-web@"):
        runtime_files()
    assert list(tmp_path.rglob("*.wasm")) == []


def npm(folder: Path, script: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name instead of the real one, or none."""
    programs = folder / "programs"
    programs.mkdir()
    if script is not None:
        (programs / "npm").write_text(f"#!/bin/sh\n{script}\n")
        (programs / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/bin" if script is not None else str(programs))


# The folder


def test_every_file_that_the_page_names_is_there(small_page: folder.Files):
    html = small_page["index.html"].decode()
    named = {normpath(path) for path in re.findall(r'(?:href|src)="([^"#]+)"', html) if path != "./"}
    for path, data in small_page.items():
        if path.startswith("static/") and path.endswith(".js"):
            for imported in re.findall(r'from "(\.[^"]+)"', data.decode()):
                named.add(normpath(join(dirname(path), imported)))
            assert not re.search(rb'"/|https?://', data), f"{path} depends on where it is hosted"
    named |= {"static/worker.js", "static/engine.js", "service-worker.js", "sample.flac", "model/graphs.json"}
    assert named <= set(small_page)


def test_page_json_describes_the_files(small_page: folder.Files):
    about = json.loads(small_page[folder.ABOUT])
    assert about["model_id"] == DTMCodec.from_pretrained("small").model_id
    assert about["bitrate"] == {"lowest": 240, "highest": 1500, "default": 800}
    for path, facts in about["files"].items():
        if path != "service-worker.js":  # which has the version of all others in it
            assert facts == {
                "bytes": len(small_page[path]),
                "hash": hashlib.sha256(small_page[path]).hexdigest()[:16],
            }
    assert about["version"].encode() in small_page["service-worker.js"]


def test_a_folder_is_written_and_written_again(small_page: folder.Files, tmp_path: Path):
    target = tmp_path / "out"
    size = folder.write_folder(small_page, target)
    (target / "CNAME").write_text("example.org")
    assert folder.write_folder(small_page, target) == size
    found = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert found == {*small_page, "CNAME"}


def test_a_folder_of_another_page_is_left_alone(tmp_path: Path):
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(ConfigError, match=r"has an index\.html of something else"):
        folder.write_folder({"index.html": b"", "page.json": b""}, tmp_path)
    with pytest.raises(ConfigError, match="is a file; allowed: a folder"):
        folder.write_folder({"index.html": b""}, tmp_path / "index.html")
    assert (tmp_path / "index.html").read_text() == "mine"


def test_a_model_with_another_selector_is_refused(codec: DTMCodec, tmp_path: Path, package: Path):
    codec.save_pretrained(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config["selector"]["distance"] = "l2"
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="'ple' on z1 with distance 'l2'; allowed in the browser"):
        folder.page_files(str(tmp_path / "model"), package)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "--static", "--listening", "test"], "--static with --listening; allowed: one of them"),
        (["serve", "--runtime", "somewhere"], "--runtime without --static; allowed: both"),
        (["serve", "--static", "--runtime", "nowhere"], "nowhere cannot be read"),
        (["page", "-o", "out", "--model", "no-such-model"], "no model 'no-such-model'"),
    ],
)
def test_what_cannot_be_is_one_line(capsys: Any, arguments: list[str], message: str):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_command_writes_a_folder(package: Path, tmp_path: Path, capsys: Any):
    with pytest.raises(SystemExit) as stopped:
        main(["page", "-o", str(tmp_path / "out"), "--runtime", str(package)])
    assert not stopped.value.code
    assert re.search(r"out: \d+\.\d MB", capsys.readouterr().out)
    assert (tmp_path / "out" / "page.json").is_file()


# The server


def test_the_command_serves_it(package: Path, client: Callable[[Any], TestClient], monkeypatch: pytest.MonkeyPatch):
    served: list[Any] = []
    monkeypatch.setattr(web, "_run", lambda app, host, port, addresses, local: served.extend([app, *addresses("URL")]))
    with pytest.raises(SystemExit) as stopped:
        main(["serve", "--static", "--runtime", str(package)])
    assert not stopped.value.code
    app, said = served
    assert said == "Page, computed in the browser: URL/"
    assert client(app).get("/page.json").json()["model_id"].startswith("small:")


@pytest.fixture
def page_client(client: Callable[[Any], TestClient]) -> TestClient:
    content = {"index.html": b"<html>", "static/a.js": b"1", "runtime/a.mjs": b"2", "runtime/a.wasm": b"3"}
    return client(create_page_app(content))


def test_files_have_the_headers_that_threads_need(page_client: TestClient):
    answer = page_client.get("/")
    assert answer.content == b"<html>"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["cross-origin-embedder-policy"] == "require-corp"
    assert "connect-src 'self';" in answer.headers["content-security-policy"]
    kinds = {"static/a.js": "text/javascript", "runtime/a.mjs": "text/javascript", "runtime/a.wasm": "application/wasm"}
    for path, kind in kinds.items():
        assert page_client.get(f"/{path}").headers["content-type"].startswith(kind)


def test_what_is_known_is_not_sent_again(page_client: TestClient):
    answer = page_client.get("/static/a.js")
    assert answer.headers["cache-control"] == "no-cache"
    again = page_client.get("/static/a.js", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert "immutable" in page_client.get("/static/a.js?v=0123").headers["cache-control"]


@pytest.mark.parametrize("path", ["/nothing", "/../app.py", "/%2e%2e/app.py", "/static/", "/static/a.js/"])
def test_nothing_else_is_there(page_client: TestClient, path: str):
    answer = page_client.get(path)
    assert (answer.status_code, answer.json()) == (404, {"error": "no such page"})


def test_nothing_can_be_sent_to_it(page_client: TestClient):
    assert page_client.post("/", content=b"speech").status_code == 405
    assert page_client.get("/", headers={"Host": "example.org"}).status_code == 400
