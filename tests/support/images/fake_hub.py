"""Serves the files of a folder as one repository of the Hugging Face hub, and runs a command that uses it.

python3 fake_hub.py FOLDER OWNER/NAME COMMAND...
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def handler(folder: Path, repository: str) -> type[http.server.BaseHTTPRequestHandler]:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    info = {"id": repository, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
    tree = [{"type": "file", "path": name, "size": len(content), "oid": COMMIT} for name, content in files.items()]

    class Hub(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            if f"{repository}/tree/" in self.path:
                body = json.dumps(tree).encode()
            elif self.path.startswith("/api/") and f"{repository}/revision/" in self.path:
                body = json.dumps(info).encode()
            else:
                body = files.get(self.path.partition(f"{repository}/resolve/{COMMIT}/")[2], b"")
            self.send_response(200 if body else 404)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", hashlib.sha256(body).hexdigest())
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    return Hub


def main(folder: str, repository: str, *command: str) -> int:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(Path(folder), repository))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
    return subprocess.run(command, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
