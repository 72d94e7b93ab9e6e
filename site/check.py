"""Fails when the pages have a defect that a reader once met: a formula or a path left as text, a `\\|` in a table, a
page without the explorer in its navigation, anything from the network. In chromium, where there is one: tables that a
phone cuts off, and a search that does not find a schedule by its name.

    site/check.py build/site
"""

import http.server
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).parent
CODE = re.compile(r"<(code|pre|script|style|math)\b.*?</\1>", re.DOTALL)
NETWORK = re.compile(r'<(?:script|img|iframe)\b[^>]*\bsrc="(https?://[^"]*)|<link\b[^>]*\bhref="(https?://[^"]*)')
SOUGHT = ("flash_pinned", "small_cache", "two_pass")
SCHEDULES = {name: f"docs/algorithms/{name.replace('_', '-')}.html" for name in SOUGHT}


def check_text(address, page, pages):
    text = CODE.sub("", re.sub(r"<a\b.*?</a>", "", page, flags=re.DOTALL))
    words = re.sub(r"<[^>]*>", "", text)
    if left := re.search(r"\\[(\[].{0,30}|\$[^$\s][^$\n]*\$", words):
        yield f"a formula is text: {left[0]}"
    if left := re.search(r"<t[dh]\b(?:(?!</t[dh]>).)*\\\|", page, re.DOTALL):
        yield f"a table shows \\|: {left[0][-40:]}"
    unlinked = re.sub(r"<a\b.*?</a>|<pre\b.*?</pre>|<code>[^<]*\s[^<]*</code>", "", page, flags=re.DOTALL)
    for path in re.findall(r"\b(?:docs|bench)/[\w/-]+\.md\b", unlinked):
        if path.replace(".md", ".html") in pages and path.replace(".md", ".html") != address:
            yield f"a path is no link: {path}"
    if not re.search(r'<a href="[^"]*explorer\.html" class="md-nav__link"', page):
        yield "no link to the explorer in the navigation"
    for asked in NETWORK.findall(page):
        yield f"asks the network for {asked[0] or asked[1]}"


def check_in_browser(site, pages):
    """What site/check.html, served beside the pages, finds wrong."""
    found, answer = threading.Event(), []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=site)

        def log_message(self, *_):
            pass

        def reply(self, body):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            if self.path == "/check.html":
                self.reply((HERE / "check.html").read_bytes())
            elif self.path == "/check.json":
                self.reply(json.dumps({"pages": pages, "schedules": SCHEDULES}).encode())
            else:
                super().do_GET()

        def do_POST(self):
            answer.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.reply(b"")
            found.set()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, tempfile.TemporaryDirectory() as profile:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/check.html"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        browser = subprocess.Popen(["chromium", *options, f"--user-data-dir={profile}", address], **silent)
        done = found.wait(timeout=300)
        browser.terminate()
        browser.wait()
        server.shutdown()
    return answer if done else ["chromium did not go through the pages within 300 s"]


def main(site):
    pages = {str(p.relative_to(site)): p.read_text(encoding="utf-8") for p in sorted(site.rglob("*.html"))}
    made = {a: p for a, p in pages.items() if a not in ("explorer.html", "404.html")}
    wrong = [f"{address}: {what}" for address, page in made.items() for what in check_text(address, page, pages)]
    if shutil.which("chromium"):
        wrong += check_in_browser(site, list(made))
    else:
        print("site: no chromium here: widths of tables and the search are not checked", file=sys.stderr)
    print("\n".join(wrong) or f"{len(made)} pages: formulas, links, tables and search are as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
