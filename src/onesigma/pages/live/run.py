"""From a model and a feed to a page that can be opened."""

from __future__ import annotations

import math
import webbrowser
from threading import Thread

from onesigma.errors import InputError
from onesigma.pages.live.feed import Feed
from onesigma.pages.live.model import LiveModel
from onesigma.pages.live.player import Player
from onesigma.pages.live.server import LiveServer


def run(
    model: LiveModel,
    feed: Feed,
    *,
    rate: float | None = None,
    hop: int | None = None,
    speed: float = 1,
    port: int = 0,
    open_page: bool = False,
) -> None:
    """Serve until Ctrl-C, which is the way to end it and no error.

    Args:
        model: who answers.
        feed: what is answered.
        rate: instants per second; by default what the feed says, or 50.
        hop: instants from window to window; by default a tenth of a window.
        speed: of a recording; 2 is twice as fast, infinity as fast as the model can.
        port: to listen on; 0 is any free one.
        open_page: also open it in the user's browser.
    """
    rate = (feed.rate or 50) if rate is None else rate
    hop = max(1, model.length // 10) if hop is None else hop
    for name, value in (("rate", rate), ("hop", hop), ("speed", speed)):
        if not value > 0 or (value == math.inf and name != "speed"):
            raise InputError(f"--{name} {value}: a positive number is needed.")
    player = Player(model, feed, rate=rate, hop=hop, speed=speed)
    with LiveServer(player, port) as server:
        print(f"{feed.title} through {model.name}: {server.url}  (Ctrl-C stops)", flush=True)
        Thread(target=player.run, daemon=True).start()
        if open_page:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("Stopped.", flush=True)
