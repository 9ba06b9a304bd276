"""Where downloads, what is unpacked from them and parsed recordings are kept."""

import os
import sys
from pathlib import Path

ENVIRONMENT = "ONESIGMA_CACHE"


def cache_folder() -> Path:
    """The folder named by ONESIGMA_CACHE, else `onesigma` in the user's cache; it may not exist."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        return Path(named)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "onesigma"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "onesigma" / "Cache"
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "onesigma"
