"""A small server of S3's object calls, for obstore to talk to: conditional PUT, GET of ranges,
HEAD, DELETE of one and of many, LIST, and refusal of other credentials and buckets.

    with Server() as server:
        bucket = server.bucket(SHUFFLER)
        server.objects                      # what it holds: name -> bytes, to look at or to damage

It is ours, so it proves what we send and how we take answers, not that a vendor's server answers
so.
"""

from __future__ import annotations

import re
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from shoal.shuffler.stores.objects.bucket import Bucket

BUCKET, KEY = "batches", "shoal-key"


class Server:
    """``with Server() as server``."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.puts: list[str] = []  # in order, also those that were refused
        self.careless = False  # writes over what is there
        self.altering = False  # stores something else than what was put
        self.bucket_name = BUCKET

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"world": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        serve = partial(self._server.serve_forever, poll_interval=0.02)  # which is how soon it ends
        self._thread = threading.Thread(target=serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def options(self, key: str = KEY) -> dict[str, str]:
        """For ``Bucket.open``, and for a credentials_file."""
        return {
            "endpoint": self.endpoint,
            "access_key_id": key,
            "secret_access_key": "secret",
            "region": "us-east-1",
        }

    def bucket(
        self, identity: bytes, *, key: str = KEY, name: str = BUCKET, schema: str = "shoal"
    ) -> Bucket:
        return Bucket.open(f"s3://{name}/some", self.options(key), identity, schema, plain=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes: the second would wait 40 ms
    world: Server

    def log_message(self, *_arguments: object) -> None:
        """Nothing."""

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {
            "ETag": '"e"',
            "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT",
            **headers,
        }.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _error(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code></Error>".encode())

    def _asked(self) -> tuple[str, dict[str, list[str]], bytes] | None:
        """Name, query and body; None: refused already."""
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        _, bucket, *name = unquote(parts.path).split("/", 2)
        if f"Credential={KEY}/" not in self.headers.get("Authorization", ""):
            self._error(403, "InvalidAccessKeyId")
        elif bucket != self.world.bucket_name:
            self._error(404, "NoSuchBucket")
        else:
            return name[0] if name else "", parse_qs(parts.query, keep_blank_values=True), body
        return None

    def do_PUT(self) -> None:
        if (asked := self._asked()) is None:
            return
        name, _, body = asked
        self.world.puts.append(name)
        new = self.headers.get("If-None-Match") == "*"
        if new and name in self.world.objects and not self.world.careless:
            self._error(412, "PreconditionFailed")
            return
        self.world.objects[name] = body[::-1] if self.world.altering else body
        self._answer(200)

    def do_GET(self) -> None:
        if (asked := self._asked()) is None:
            return
        name, query, _ = asked
        if "list-type" in query:
            self._list(query["prefix"][0])
            return
        if name not in self.world.objects:
            self._error(404, "NoSuchKey")
            return
        data = self.world.objects[name]
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if self.command == "HEAD" or wanted is None:
            self._answer(200, data, Content_Length=str(len(data)))
            return
        first, last = int(wanted[1]), min(int(wanted[2]), len(data) - 1)
        if first > last:
            self._error(416, "InvalidRange")
            return
        self._answer(206, data[first : last + 1], Content_Range=f"bytes {first}-{last}/{len(data)}")

    do_HEAD = do_GET  # noqa: N815 - as the library calls it

    def _list(self, prefix: str) -> None:
        found = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(data)}</Size><ETag>e</ETag>"
            "<LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>"
            for name, data in sorted(self.world.objects.items())
            if name.startswith(prefix)
        )
        self._answer(200, f"<ListBucketResult>{found}</ListBucketResult>".encode())

    def do_DELETE(self) -> None:
        if (asked := self._asked()) is not None:
            self.world.objects.pop(asked[0], None)
            self._answer(204)

    def do_POST(self) -> None:
        """Deletes many."""
        if (asked := self._asked()) is None:
            return
        names = re.findall(r"<Key>([^<]*)</Key>", asked[2].decode())
        for name in names:
            self.world.objects.pop(name, None)
        found = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in names)
        self._answer(200, f"<DeleteResult>{found}</DeleteResult>".encode())
