"""Chromium without a window, over its DevTools protocol: open a page, wait for what it shows, click, take a picture."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.support import supervisor
from tests.support.servers import end

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-sync "
    "--disable-component-update --hide-scrollbars --remote-debugging-port=0"
)
# At two in a second, or as many as a loaded machine answers.
_QUERIES = 600
_CLICKS = 12
_CALM = 4
# A button or link with the string, otherwise the innermost element that contains all of it.
_CLICK = """((text, number) => {
  const has = one => one.innerText?.trim() === text;
  const all = (kinds, fits) => [...document.querySelectorAll(kinds)].filter(one => has(one) && fits(one));
  const buttons = all("button, a", () => true);
  const found = buttons.length ? buttons : all("label, span, div", one => ![...one.children].some(has));
  found[number %% found.length]?.click();
  return Boolean(found.length);
})(%s, %d)"""


@dataclass
class Page:
    """The one tab of a browser."""

    line: ClientConnection
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def open(self, url: str) -> None:
        """Load a page; nothing of the one before is there afterwards."""
        self._do("Page.navigate", url="about:blank")
        self._do("Page.navigate", url=url)

    def text(self) -> str:
        """Return the visible string of the page."""
        return str(self._evaluate("document.body?.innerText ?? ''"))

    def source(self) -> str:
        """The document as scripts have made it."""
        return str(self._evaluate("document.documentElement.outerHTML"))

    def wait_for(self, *strings: str) -> None:
        """Wait until the page shows all of these strings, in any case of letters, as pages capitalize some."""
        missing: list[str] = []
        for _ in range(_QUERIES):
            shown = self.text().lower()
            if not (missing := [text for text in strings if text.lower() not in shown]):
                return
            time.sleep(0.5)
        raise AssertionError(f"the page does not show {missing}, but:\n{self.text()}")

    def click(self, text: str, number: int = 0) -> None:
        """Click on an element with this string, counted from the first and cyclically, as soon as there is one."""
        for _ in range(_QUERIES):
            if self._evaluate(_CLICK % (json.dumps(text), number)):
                return
            time.sleep(0.5)
        raise AssertionError(f"there is no {text!r} to click on:\n{self.text()}")

    def click_for(self, text: str, *shows: str) -> None:
        """Click on a string until the page shows others, each time on the next element that has it.

        The first element may not accept clicks, and rows with the same string open different things.
        """
        for number in range(_CLICKS):
            self.click(text, number)
            for _ in range(_QUERIES // _CLICKS):
                shown = self.text().lower()
                if all(one.lower() in shown for one in shows):
                    return
                time.sleep(0.5)
        raise AssertionError(f"the page does not show all of {shows} after clicks on {text!r}, but:\n{self.text()}")

    def resize(self, width: int, height: int) -> None:
        """Have a window of this size; what scrolls inside a page is laid out in it."""
        self._do("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self, file: Path) -> None:
        """Draw the page as soon as it stays as it is."""
        before, same = "", 0
        # Clocks on the page may never stand still.
        for _ in range(60):
            shown = self.source()
            same = same + 1 if shown == before else 0
            if same == _CALM:
                break
            before = shown
            time.sleep(0.5)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(self._do("Page.captureScreenshot", format="png")["data"]))

    def _evaluate(self, expression: str) -> Any:
        return self._do("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def _do(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self.line.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self.line.recv())
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result


@contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """A browser with one empty tab until the end of the block; it keeps its profile in a folder."""
    program = next((found for name in _PROGRAMS if (found := shutil.which(name))), None)
    assert program is not None, "there is no Chromium: `make browser` installs it"
    command = [program, *_OPTIONS.split(), f"--user-data-dir={folder}", "--window-size=1600,1300", "about:blank"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    supervisor.watch(process.pid)
    try:
        with connect(_tab(process, folder), max_size=None, ping_interval=None) as line:
            yield Page(line)
    finally:
        end(process)


def _tab(process: subprocess.Popen[bytes], folder: Path) -> str:
    """Return the address of the browser's tab, once the browser has written it."""
    for _ in range(_QUERIES):
        assert process.poll() is None, (folder / "log").read_text(errors="replace")
        if (port_file := folder / "DevToolsActivePort").exists() and (lines := port_file.read_text().splitlines()):
            with urllib.request.urlopen(f"http://127.0.0.1:{lines[0]}/json/list", timeout=120) as answer:
                tabs = [one["webSocketDebuggerUrl"] for one in json.load(answer) if one["type"] == "page"]
            if tabs:
                return str(tabs[0])
        time.sleep(0.5)
    raise AssertionError("Chromium reports no port")
