"""A health answer as a container would give it: health.py PORT STATUS MEMBERS."""

import http.server
import json
import sys

port, status, members = map(int, sys.argv[1:])


class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"ready": status == 200, "members": members}).encode()
        self.send_response(status if self.path == "/readyz" else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


http.server.ThreadingHTTPServer(("0.0.0.0", port), Health).serve_forever()
