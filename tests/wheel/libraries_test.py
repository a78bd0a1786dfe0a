#!/usr/bin/env python3
"""tools/wheel_libraries without the sources that it needs. tests/wheel.sh runs this; nothing is compiled."""

import http.server
import os
import pathlib
import subprocess
import tempfile
import threading
import unittest

SCRIPT = pathlib.Path(__file__).parents[2] / "tools" / "wheel_libraries"


class Empty(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(404)

    def log_message(self, *_):
        pass


def libraries(mirror):
    """The finished process, with a cache of its own."""
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "XDG_CACHE_HOME": cache, "DEBIAN_MIRROR": mirror, "DEBIAN_SECURITY_MIRROR": mirror,
               "no_proxy": "127.0.0.1"}
        return subprocess.run([SCRIPT], capture_output=True, text=True, env=env, timeout=600)


class Libraries(unittest.TestCase):
    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Empty)
        self.mirror = f"http://127.0.0.1:{self.server.server_port}/debian"
        self.addCleanup(self.server.server_close)

    def test_a_mirror_that_is_out_of_reach_skips_the_wheel(self):
        self.server.server_close()
        result = libraries(self.mirror)
        self.assertEqual(result.returncode, 77, result.stderr)
        self.assertEqual(result.stdout, "SKIPPED: the wheel: Debian's mirror is out of reach\n")

    def test_a_mirror_without_debian_is_a_failure(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.shutdown)
        result = libraries(self.mirror)
        self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
        self.assertIn("404", result.stderr)
        self.assertIn("tools/wheel_libraries: apt-get update failed", result.stderr)


if __name__ == "__main__":
    unittest.main()
