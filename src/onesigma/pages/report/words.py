"""The report's plain language, from words.toml: what each number says, and what it does not."""

import tomllib
from importlib.resources import files

_words = tomllib.loads(files("onesigma.pages.report").joinpath("words.toml").read_text("utf-8"))
TEXTS: dict[str, str] = _words["texts"]
TERMS: dict[str, dict[str, str]] = _words["terms"]
LIMITS: list[str] = _words["limits"]
