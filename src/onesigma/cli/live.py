"""``onesigma live``: watch a sensor's stream go through a model, in the browser."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from onesigma.cli.options import Commands, add_channels, add_labels, command, labels_of
from onesigma.errors import InputError

if TYPE_CHECKING:
    from onesigma.pages.live.model import LiveModel

_SOURCES = """SOURCE is one of
  recording.csv   a recording: .csv, .tsv, .txt, .npy, .parquet or .wav, played at --speed
  -               lines from standard input
  /dev/ttyUSB0    a serial line, at --baud; or any other device or named pipe
  udp:5005        datagrams to that port of this machine

A line holds one number per channel, between commas, semicolons or blanks. Lines that do not are
counted, shown, and left out. The page is served to this machine only. Ctrl-C stops, with exit
code 0; a recording waits for the first viewer, and its end does not end the program."""


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "live",
        "watch a sensor's stream go through a model, in the browser",
        description="Play a recorded or live stream through a converted model and show the signal, "
        "the answers and the doubt on a local web page.\n\n" + _SOURCES,
        example="onesigma live --demo --open\n"
        "  onesigma live model.onnx recording.csv --rate 50 --speed 2\n"
        "  my-sensor | onesigma live model.onnx - --rate 100",
    )
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="a file of onesigma.export (.onnx; PyTorch is not needed) or of onesigma.save",
    )
    parser.add_argument("source", nargs="?", metavar="SOURCE", help="see above")
    parser.add_argument(
        "--demo", action="store_true", help="the shipped smartwatch network and a recording for it"
    )
    _add_stream(parser)
    add_labels(parser)
    parser.add_argument("--port", type=int, default=0, help="of the page; default: any free one")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.set_defaults(run=run)


def _add_stream(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rate", type=float, help="instants per second; default 50, or what a WAV file says"
    )
    parser.add_argument("--hop", type=int, help="instants between windows; default: a tenth of one")
    parser.add_argument(
        "--speed", type=float, default=1, help="of a recording; 2 is twice as fast, inf all it can"
    )
    add_channels(parser)
    parser.add_argument("--baud", type=int, default=115200, help="of a serial line; default 115200")


def run(options: argparse.Namespace) -> None:
    from onesigma.pages.live.feed import open_feed
    from onesigma.pages.live.run import run as serve

    if options.demo:
        from onesigma.lab.demo.playback import demo

        model, feed = demo()
    elif options.model is None or options.source is None:
        raise InputError("Name a MODEL and a SOURCE, or say --demo. See: onesigma live --help")
    else:
        model = _model(options)
        feed = open_feed(options.source, model.channels, columns=options.columns, baud=options.baud)
    serve(
        model,
        feed,
        rate=options.rate,
        hop=options.hop,
        speed=options.speed,
        port=options.port,
        open_page=options.open,
    )


def _model(options: argparse.Namespace) -> LiveModel:
    from onesigma.pages.live.model import exported, opened_model
    from onesigma.tables.scaling import Scaling

    settings = {
        "channels_last": options.channels_last,
        "labels": labels_of(options),
        "scaling": None if options.standardise is None else Scaling.read(options.standardise),
    }
    if Path(options.model).suffix.lower() == ".onnx":
        return exported(Path(options.model), **settings)
    from onesigma.storage.opening import open_model

    return opened_model(open_model(options.model), **settings)
